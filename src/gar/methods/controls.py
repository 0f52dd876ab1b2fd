"""Controls and one ablation: GAR's bonus with another similarity in the place of the cosine with the anchor.

A gain that a control shares is not due to the gradient's direction.
"""

from dataclasses import replace

from gar.methods.base import Method, ScoredBatch, ShapedRewards, format_penalties
from gar.methods.gar import GAR_GRPO
from gar.settings import RewardSettings

ANCHOR_SHUFFLED = replace(
    GAR_GRPO,
    name="anchor-shuffled",
    summary="control: the anchor is another problem's",
    alignment="shuffled-anchor",
)

ANCHOR_RANDOM = replace(
    GAR_GRPO,
    name="anchor-random",
    summary="control: the anchor is a random vector, one for each problem",
    alignment="random-anchor",
)

HIDDEN_COSINE = replace(
    GAR_GRPO,
    name="hidden-cosine",
    summary="control: cosine of mean hidden states",
    signal={"kind": "hidden"},
)

TEXT_SIMILARITY = replace(
    GAR_GRPO,
    name="text-similarity",
    summary="control: similarity of the texts, a ratio of edits",
    alignment="text",
)

LENGTH = replace(
    GAR_GRPO,
    name="length",
    summary="control: closeness in length to the anchor",
    alignment="length",
)


def alignment_alone(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """The cosine itself as reward, right or wrong, plus the penalty for bad format; no base reward, no gate."""
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
