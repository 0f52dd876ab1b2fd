"""MASPO: a soft gate in place of the clip, wider for rare tokens and for large advantages [arXiv 2602.17550]."""

from torch import Tensor

from gar.core import SoftGate, maspo_weights
from gar.methods.base import Method, outcome_rewards
from gar.settings import LossSettings

NO_CLIP = 1e9
"""For TRL's epsilon: a ratio never leaves [1 - this, 1 + this]."""


def maspo_gate(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, settings: LossSettings) -> Tensor:
    """Weight of each token, [responses, tokens]; a constant to the gradient."""
    return maspo_weights(log_probs, old_log_probs, advantages, SoftGate(**settings.maspo.model_dump()))


MASPO = Method(
    name="maspo",
    summary="outcome reward, normalised within the group, soft gate instead of the clip; two or more updates a rollout",
    shape=outcome_rewards,
    gate=maspo_gate,
    trl={"loss_type": "dapo", "epsilon": NO_CLIP, "epsilon_high": NO_CLIP},
)
