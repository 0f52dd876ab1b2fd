"""G2RL: a response earns more if its gradient points away from the others of its group [arXiv 2512.15687]."""

from gar.core import novelty_rewards, novelty_scores
from gar.methods.base import Method, ScoredBatch, ShapedRewards, eligible_responses, format_penalties
from gar.settings import RewardSettings


def novelty_shape(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """+1 or -1 for the outcome, scaled by the response's novelty in its group, plus the penalty for bad format."""
    assert batch.vectors is not None, "the driver computes vectors for a method that compares responses"
    eligible = eligible_responses(batch, settings)
    penalties = format_penalties(batch, settings)
    usable = (batch.vectors != 0).any(-1)
    rewards = novelty_rewards(
        eligible,
        novelty_scores(batch.vectors, eligible, batch.group_index).double(),
        penalties,
        batch.group_index,
        scored=usable,
    )
    outcomes = eligible.double() * 2 - 1
    return ShapedRewards(
        rewards=rewards, outcomes=outcomes, bonuses=rewards - outcomes - penalties, penalties=penalties
    )


G2RL = Method(
    name="g2rl",
    summary="outcome of +1 or -1, scaled by how new the gradient is in its group",
    shape=novelty_shape,
    compares_responses=True,
    signal={"kind": "gradient", "span": "response", "max_tokens": None},
    reward=("format_penalty", "format_gate"),
)
