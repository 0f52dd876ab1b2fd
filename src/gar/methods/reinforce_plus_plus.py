"""REINFORCE++: the outcome, whitened over all tokens of the whole batch [arXiv 2501.03262]."""

from gar.methods.base import Method, outcome_rewards

REINFORCE_PLUS_PLUS = Method(
    name="reinforce-plus-plus",
    summary="outcome reward, whitened over all tokens of the batch",
    shape=outcome_rewards,
    estimator="reinforce-plus-plus",
)

REINFORCE_PLUS_PLUS_BASELINE = Method(
    name="reinforce-plus-plus-baseline",
    summary="outcome reward minus the group's mean, whitened over all tokens of the batch",
    shape=outcome_rewards,
    estimator="reinforce-plus-plus-baseline",
)
