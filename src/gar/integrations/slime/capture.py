"""Keep the inputs of the LM head during slime's own log-probability pass, for `postprocess`."""

import dataclasses
from collections.abc import Callable
from typing import Any

from gar.errors import ConfigError
from gar.integrations.megatron import HeadInputs, watch_head
from gar.integrations.slime.settings import capture_of

_POLICY_PASS = ""
"""slime's store_prefix of the policy's pass. Other models have "ref_" and "teacher_", GAR's passes "gar_"."""


class _HeldInputs(list[HeadInputs]):
    """Inputs of the head in each micro-batch. Hidden states are moved to host memory, so the pass needs no more."""

    def append(self, inputs: HeadInputs) -> None:
        super().append(dataclasses.replace(inputs, hidden=inputs.hidden.cpu()))


_seen = _HeldInputs()
_stop: Callable[[], None] | None = None


def captured_pass() -> list[HeadInputs]:
    """The micro-batches of slime's pass since the last call. Ends the capture, since slime trains afterwards."""
    global _seen, _stop
    if _stop is None:
        raise ConfigError(
            "gar.capture is 'logprob', but slime has made no log-probability pass of the policy before this step: "
            "it skips that pass where one update per rollout lets the loss compute the log-probabilities. Make two "
            "or more updates (--num-steps-per-rollout 2), or set gar.capture to own.",
            code="no-pass",
        )
    _stop()
    seen, _seen, _stop = _seen, _HeldInputs(), None
    return seen


def before_log_prob(args: Any, model: Any, store_prefix: str) -> None:
    """With `capture: logprob`, capture the pass that slime is about to make, if it is the policy's."""
    global _seen, _stop
    if store_prefix == _POLICY_PASS and capture_of(args) == "logprob":
        if _stop is not None:
            _stop()
        _seen = _HeldInputs()
        _stop = watch_head(model, _seen)
