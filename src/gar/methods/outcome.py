"""Methods that reward the outcome alone: every correct response of a group gets the same."""

from gar.core import maspo_weights
from gar.methods.base import Method, outcome_rewards

NO_CLIP = 1e9
"""For TRL's epsilon: a ratio never leaves [1 - this, 1 + this]."""

PLAIN_METHODS = (
    Method(
        name="grpo",
        summary="outcome reward, normalized within the group [arXiv 2402.03300]",
        shape=outcome_rewards,
    ),
    Method(
        name="dr-grpo",
        summary="outcome reward minus the group's mean, summed over tokens [arXiv 2503.20783]",
        shape=outcome_rewards,
        trl={"loss_type": "dr_grpo", "scale_rewards": "none"},
    ),
    Method(
        name="dapo",
        summary="grpo with a mean over all tokens and a higher upper clip [arXiv 2503.14476], without its filtering",
        shape=outcome_rewards,
        trl={"loss_type": "dapo", "epsilon_high": 0.28},
    ),
    Method(
        name="reinforce-plus-plus",
        summary="outcome reward, whitened over all tokens of the batch [arXiv 2501.03262]",
        shape=outcome_rewards,
        estimator="reinforce-plus-plus",
    ),
    Method(
        name="reinforce-plus-plus-baseline",
        summary="outcome reward minus the group's mean, whitened over all tokens of the batch",
        shape=outcome_rewards,
        estimator="reinforce-plus-plus-baseline",
    ),
    Method(
        name="maspo",  # a soft gate for the clip, wider for rare tokens and large advantages [arXiv 2602.17550]
        summary="outcome reward, normalized within the group, soft gate instead of the clip, two or more updates a "
        "rollout",
        shape=outcome_rewards,
        gate=maspo_weights,
        trl={"loss_type": "dapo", "epsilon": NO_CLIP, "epsilon_high": NO_CLIP},
    ),
)
