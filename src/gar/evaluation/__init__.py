"""Benchmarks, pass@k, and the statistics of paired comparisons."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.evaluation.metrics import pass_at_k
    from gar.evaluation.paired import PairedComparison, compare_paired, p_text
    from gar.evaluation.statistics import holm_adjusted, mean_and_sd, minimum_detectable_effect, paired_t_p_value
    from gar.evaluation.text_tables import TextTable, markdown_text

__all__ = [
    "PairedComparison",
    "TextTable",
    "compare_paired",
    "holm_adjusted",
    "markdown_text",
    "mean_and_sd",
    "minimum_detectable_effect",
    "p_text",
    "paired_t_p_value",
    "pass_at_k",
]
__getattr__ = lazy_names(
    __name__,
    {
        "gar.evaluation.metrics": "pass_at_k",
        "gar.evaluation.paired": "PairedComparison compare_paired p_text",
        "gar.evaluation.statistics": "holm_adjusted mean_and_sd minimum_detectable_effect paired_t_p_value",
        "gar.evaluation.text_tables": "TextTable markdown_text",
    },
)
