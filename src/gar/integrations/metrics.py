"""What is logged about the rewards of one step, whatever the engine: docs/glossary.md defines each."""

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from gar.core import group_deviations
from gar.methods import ScoredBatch, ShapedRewards
from gar.types import Status


def step_metrics(
    batch: ScoredBatch,
    eligible: Tensor,
    shaped: ShapedRewards,
    *,
    statuses: Sequence[str],
    num_anchors: Sequence[int],
    num_scored_tokens: Sequence[int],
) -> dict[str, float]:
    """Means over the responses of all ranks; NaN where there is nothing to average.

    Args:
        batch: What the method read.
        eligible: From `gar.methods.eligible_responses`.
        shaped: The method's rewards.
        statuses: How the verification of each response ended.
        num_anchors: Anchors of each response's problem.
        num_scored_tokens: Tokens of each response that can be scored.
    """
    outcomes = shaped.outcomes + shaped.penalties
    alignment, bonuses = batch.alignment[batch.scored], shaped.bonuses[batch.scored]
    counts, total = Counter(statuses), len(statuses)
    return {
        "gar/verified_fraction": _mean(batch.verified),
        "gar/well_formatted_fraction": _mean(batch.well_formatted),
        "gar/eligible_fraction": _mean(eligible),
        "gar/scored_fraction": _mean(batch.scored),
        "gar/alignment_mean": _mean(alignment),
        "gar/alignment_std": float(alignment.std(correction=0)) if len(alignment) else float("nan"),
        "gar/bonus_mean": _mean(bonuses),
        "gar/outcome_mean": _mean(outcomes),
        "gar/silent_group_fraction_outcome": _silent_fraction(outcomes, batch.group_index),
        "gar/silent_group_fraction_shaped": _silent_fraction(shaped.rewards, batch.group_index),
        "gar/no_anchor_fraction": list(num_anchors).count(0) / total,
        "gar/no_signal_fraction": list(num_scored_tokens).count(0) / total,
        **{f"verify/{status}_fraction": counts[status] / total for status in Status},
    }


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def _silent_fraction(rewards: Tensor, group_index: Tensor) -> float:
    """Share of groups whose rewards are all equal, so that GRPO learns nothing from them."""
    uneven = group_index[group_deviations(rewards, group_index) != 0].unique().numel()
    return 1.0 - uneven / group_index.unique().numel()
