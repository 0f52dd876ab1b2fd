"""GRPO and its variants: rewards from the outcome only. Every correct response of a group gets the same reward."""

from gar.methods.base import Method, outcome_rewards

GRPO = Method(
    name="grpo",
    summary="outcome reward, normalized within the group [arXiv 2402.03300]",
    shape=outcome_rewards,
)

DR_GRPO = Method(
    name="dr-grpo",
    summary="outcome reward minus the group's mean, summed over tokens [arXiv 2503.20783]",
    shape=outcome_rewards,
    trl={"loss_type": "dr_grpo", "scale_rewards": "none"},
)

DAPO = Method(
    name="dapo",
    summary="grpo with a mean over all tokens and a higher upper clip [arXiv 2503.14476], without its filtering",
    shape=outcome_rewards,
    trl={"loss_type": "dapo", "epsilon_high": 0.28},
)
