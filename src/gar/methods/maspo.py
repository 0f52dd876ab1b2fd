"""MASPO: a soft gate in place of the clip, wider for rare tokens and for large advantages [arXiv 2602.17550]."""

from gar.core import maspo_weights
from gar.methods.base import Method, outcome_rewards

NO_CLIP = 1e9
"""For TRL's epsilon: a ratio never leaves [1 - this, 1 + this]."""


MASPO = Method(
    name="maspo",
    summary="outcome reward, normalized within the group, soft gate instead of the clip; two or more updates a rollout",
    shape=outcome_rewards,
    gate=maspo_weights,
    trl={"loss_type": "dapo", "epsilon": NO_CLIP, "epsilon_high": NO_CLIP},
)
