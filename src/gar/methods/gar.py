"""GAR: correct responses that align better than their group earn a bonus [arXiv 2609.03342, algorithm 1]."""

from dataclasses import replace

from gar.core import gradient_aligned_bonuses
from gar.methods.base import BONUS_SETTINGS, Method, ScoredBatch, ShapedRewards, eligible_responses, outcome_rewards
from gar.settings import RewardSettings


def gradient_aligned_shape(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """Outcome rewards plus the alignment bonus. With `bonus_weight=0` equal to `outcome_rewards`, bit for bit."""
    plain = outcome_rewards(batch, settings)
    bonuses = gradient_aligned_bonuses(
        eligible_responses(batch, settings),
        batch.alignment.double(),
        batch.group_index,
        scored=batch.scored,
        beta=settings.bonus_weight,
        center=settings.center,
        clip=settings.clip,
    )
    return replace(plain, rewards=plain.outcomes + bonuses + plain.penalties, bonuses=bonuses)


GAR_GRPO = Method(
    name="gar-grpo",
    summary="outcome reward plus gradient-aligned bonus, normalized within the group",
    shape=gradient_aligned_shape,
    reward=BONUS_SETTINGS,
    alignment="anchor",
)

GAR_REINFORCE_PLUS_PLUS = replace(
    GAR_GRPO,
    name="gar-reinforce-plus-plus",
    summary="outcome reward plus gradient-aligned bonus, whitened over all tokens of the batch",
    estimator="reinforce-plus-plus",
)
