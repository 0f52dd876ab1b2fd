"""MASPO as a policy loss of verl: `actor_rollout_ref.actor.policy_loss.loss_mode=gar_maspo`."""

# pyright: reportMissingImports=false
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils.torch_functional import masked_mean
from verl.workers.config import PolicyLossConfig

from gar.core import SoftGate, maspo_token_losses, maspo_weights
from gar.errors import ConfigError
from gar.settings import MaspoSettings


@dataclass
class MaspoLossConfig(PolicyLossConfig):
    """verl's settings of a policy loss, and MASPO's.

    Name it as `actor_rollout_ref.actor.policy_loss._target_` to set any of `MaspoSettings`, for example
    `+actor_rollout_ref.actor.policy_loss.maspo.alpha=0.5`.
    """

    maspo: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the settings before the first loss."""
        maspo_settings(self)


def maspo_settings(policy_loss: Any) -> MaspoSettings:
    """MASPO's settings in verl's section `policy_loss`; its defaults where the section is verl's own.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    try:
        return MaspoSettings.model_validate(dict(getattr(policy_loss, "maspo", {})))
    except ValidationError as error:
        raise ConfigError(f"actor_rollout_ref.actor.policy_loss.maspo: {error}") from error


def maspo_policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """MASPO's loss in verl's signature; `gar.core.policy_losses` has the formulas.

    Args:
        old_log_prob: [responses, tokens], of the policy that made the rollouts.
        log_prob: Log-probabilities under the policy that is trained.
        advantages: One per token.
        response_mask: True for the policy's own tokens.
        loss_agg_mode: How verl averages; MASPO's is "token-mean", verl's default.
        config: verl's `ActorConfig`.
        rollout_is_weights: verl's correction for the rollout engine's probabilities, multiplied in as verl's losses do.

    Returns:
        The loss, and metrics.
    """
    gate = SoftGate(**maspo_settings(config.policy_loss).model_dump())
    weights = maspo_weights(log_prob, old_log_prob, advantages, gate)
    losses = maspo_token_losses(log_prob, old_log_prob, advantages, weights)
    if rollout_is_weights is not None:
        losses = losses * rollout_is_weights
    loss = agg_loss(loss_mat=losses, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info)
    return loss, {
        "actor/maspo_weight": masked_mean(weights, response_mask).item(),
        "actor/ppo_kl": masked_mean((old_log_prob - log_prob).detach(), response_mask).item(),
    }
