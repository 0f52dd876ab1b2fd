"""A method's gate on tokens, which TRL's policy loss does not have.

TRL reads `inputs["advantages"]` after it has computed the log-probabilities, so that a gate that depends on them can be
multiplied into the advantages in between; `tests/contracts` checks that order.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from gar.methods import Method


class PolicyLoss:
    """Wraps TRL's loss of one micro-batch.

    Attributes:
        inputs: TRL's tensors of the micro-batch under way; None outside of one.
    """

    def __init__(self, method: Method):
        self._gate = method.gate
        self.inputs: dict[str, Any] | None = None

    def compute(self, trl_loss: Callable[[Any, dict[str, Any]], Tensor], model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's loss with the method's gate; `inputs` stay as they are for the next epoch over them."""
        self.inputs = dict(inputs)
        try:
            return trl_loss(model, self.inputs)
        finally:
            self.inputs = None

    def receive(self, log_probs: Tensor) -> None:
        """Log-probabilities of the pass under way, [responses, tokens], before TRL reads the advantages."""
        assert self.inputs is not None
        if self._gate is None:
            return
        advantages = self.inputs["advantages"]
        advantages = advantages[:, None] if advantages.dim() == 1 else advantages
        now = log_probs.detach()
        old = self.inputs.get("old_per_token_logps")
        self.inputs["advantages"] = advantages * self._gate(now, now if old is None else old, advantages)
