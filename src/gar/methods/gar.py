"""GAR: correct responses that align better than their group earn a bonus [arXiv 2609.03342, algorithm 1].

The controls replace the cosine with the anchor by a different similarity. A gain that a control shares is not due to
the gradient's direction.
"""

from dataclasses import replace

from gar.core import gradient_aligned_bonuses
from gar.methods.base import (
    BONUS_SETTINGS,
    Method,
    ScoredBatch,
    ShapedRewards,
    eligible_responses,
    format_penalties,
    outcome_rewards,
)
from gar.settings import RewardSettings


def gradient_aligned_shape(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """Outcome rewards plus the alignment bonus. With `bonus_weight=0` equal to `outcome_rewards`, bit for bit."""
    plain = outcome_rewards(batch, settings)
    bonuses = gradient_aligned_bonuses(
        eligible_responses(batch, settings),
        batch.alignment.double(),
        batch.group_index,
        scored=batch.scored,
        bonus_weight=settings.bonus_weight,
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

CONTROLS = tuple(
    replace(GAR_GRPO, name=name, summary=f"control: {summary}", **changes)
    for name, summary, changes in (
        ("anchor-shuffled", "the expert solution is another problem's", {"alignment": "shuffled-anchor"}),
        ("anchor-random", "a random vector for each problem, no expert solution", {"alignment": "random-anchor"}),
        ("hidden-cosine", "cosine of mean hidden states", {"signal": {"kind": "hidden"}}),
        ("text-similarity", "similarity of the texts, a ratio of edits", {"alignment": "text"}),
        ("length", "closeness in length to the expert solution", {"alignment": "length"}),
    )
)


def alignment_alone(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """The cosine itself as reward, right or wrong, plus the penalty for bad format. No base reward, no gate."""
    penalties = format_penalties(batch, settings)
    bonuses = batch.alignment.double().where(batch.scored, 0.0)
    return ShapedRewards(
        rewards=bonuses + penalties, outcomes=bonuses.new_zeros(len(bonuses)), bonuses=bonuses, penalties=penalties
    )


ALIGNMENT_ONLY = Method(
    name="alignment-only",
    summary="ablation: the cosine alone as reward, for right and wrong responses",
    shape=alignment_alone,
    reward=("format_penalty",),
    alignment="anchor",
    scores_all=True,
)
