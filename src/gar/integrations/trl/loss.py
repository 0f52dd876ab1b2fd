"""What TRL's policy loss does not have: a method's gate on tokens, and the k2 estimator of the KL term.

TRL reads `inputs["advantages"]` after it has computed the log-probabilities, so that a gate that depends on them can be
multiplied into the advantages in between; `tests/contracts` checks that order.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from gar.core import k2_token_losses
from gar.methods import Method
from gar.settings import LossSettings


class PolicyLoss:
    """Wraps TRL's loss of one micro-batch.

    Attributes:
        inputs: TRL's tensors of the micro-batch under way; None outside of one.
    """

    def __init__(self, method: Method, settings: LossSettings):
        self._method = method
        self._settings = settings
        self._log_probs: Tensor | None = None
        self.inputs: dict[str, Any] | None = None

    def compute(
        self, trainer: Any, trl_loss: Callable[[Any, dict[str, Any]], Tensor], model: Any, inputs: dict[str, Any]
    ) -> Tensor:
        """TRL's loss with gate and KL term as set; `inputs` stay as they are for the next epoch over them."""
        kl_weight = trainer.beta
        with_k2 = self._settings.kl == "k2" and kl_weight != 0.0
        self.inputs = dict(inputs)
        if with_k2:
            trainer.beta = 0.0  # or TRL adds its k3 as well
        try:
            loss = trl_loss(model, self.inputs)
            log_probs = self._log_probs
        finally:
            trainer.beta = kl_weight
            self.inputs = self._log_probs = None
        if not with_k2:
            return loss
        assert log_probs is not None
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        kl = k2_token_losses(log_probs, inputs["ref_per_token_logps"])
        mean = ((kl * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()  # as TRL's loss_type grpo averages
        training = trainer.model.training
        trainer._metrics["train" if training else "eval"]["kl"].append(
            trainer.accelerator.gather(mean.detach()).mean().item()
        )
        return loss + kl_weight * mean / (trainer.current_gradient_accumulation_steps if training else 1)

    def receive(self, log_probs: Tensor) -> None:
        """Log-probabilities of the pass under way, [responses, tokens], before TRL reads the advantages."""
        assert self.inputs is not None
        self._log_probs = log_probs
        if self._method.gate is None:
            return
        advantages = self.inputs["advantages"]
        advantages = advantages[:, None] if advantages.dim() == 1 else advantages
        now = log_probs.detach()
        old = self.inputs.get("old_per_token_logps")
        gate = self._method.gate(now, now if old is None else old, advantages, self._settings)
        self.inputs["advantages"] = advantages * gate
