"""Benchmarks, pass@k, and the statistics of paired comparisons."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.evaluation.metrics import pass_at_k
    from gar.evaluation.paired import contrasts, problem_counts
    from gar.evaluation.statistics import (
        holm_adjusted,
        mean_and_sd,
        minimum_detectable_effect,
        paired_t_p_value,
        sign_flip_p_value,
    )
    from gar.evaluation.text_tables import markdown_text, p_text, print_tables
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "contrasts",
    "holm_adjusted",
    "markdown_text",
    "mean_and_sd",
    "minimum_detectable_effect",
    "p_text",
    "paired_t_p_value",
    "pass_at_k",
    "print_tables",
    "problem_counts",
    "sign_flip_p_value",
]
