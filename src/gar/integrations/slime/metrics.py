"""What is logged about the rewards of one step: means over the responses of all ranks."""

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from gar.core import group_deviations
from gar.integrations.slime.facts import ResponseFacts
from gar.methods import ScoredBatch, ShapedRewards
from gar.types import Status


def batch_metrics(
    facts: Sequence[ResponseFacts], batch: ScoredBatch, eligible: Tensor, shaped: ShapedRewards
) -> dict[str, float]:
    """What docs/glossary.md defines, under the names that TRL's runs have; NaN where there is nothing to average.

    Args:
        facts: Of all ranks.
        batch: The same as the method read them.
        eligible: From `gar.methods.eligible_responses`.
        shaped: The method's rewards.
    """
    outcomes = shaped.outcomes + shaped.penalties
    alignment, bonuses = batch.alignment[batch.scored], shaped.bonuses[batch.scored]
    counts = Counter(fact.status for fact in facts)
    return {
        "gar/verified_fraction": _mean(batch.verified),
        "gar/well_formatted_fraction": _mean(batch.well_formatted),
        "gar/eligible_fraction": _mean(eligible),
        "gar/scored_fraction": _mean(batch.scored),
        "gar/alignment_mean": _mean(alignment),
        "gar/alignment_std": float(alignment.std(correction=0)) if len(alignment) else float("nan"),
        "gar/bonus_mean": _mean(bonuses),
        "gar/outcome_mean": _mean(outcomes),
        "gar/shaped_mean": _mean(shaped.rewards),
        "gar/silent_group_fraction_outcome": _silent_fraction(outcomes, batch.group_index),
        "gar/silent_group_fraction_shaped": _silent_fraction(shaped.rewards, batch.group_index),
        "gar/no_anchor_fraction": sum(not fact.num_anchors for fact in facts) / len(facts),
        "gar/no_signal_fraction": sum(not fact.num_scored_tokens for fact in facts) / len(facts),
        **{f"verify/{status}_fraction": counts[status] / len(facts) for status in Status},
    }


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def _silent_fraction(rewards: Tensor, group_index: Tensor) -> float:
    """Share of groups whose rewards are all equal."""
    uneven = group_index[group_deviations(rewards, group_index) != 0].unique().numel()
    return 1.0 - uneven / group_index.unique().numel()
