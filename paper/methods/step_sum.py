"""A metric that is summed over the micro-batches of an optimizer step."""

from typing import Any


class StepSum:
    """A metric summed over the micro-batches of an optimizer step, logged once a step.

    Args:
        name: Of the metric.
    """

    def __init__(self, name: str):
        self._name = name
        self._sum = 0.0

    def add(self, trainer: Any, value: float) -> None:
        """Add the value of one micro-batch, and log the sum after the last one of the step."""
        self._sum += value
        if trainer.accelerator.sync_gradients:
            trainer._metrics["train"][self._name].append(self._sum)
            self._sum = 0.0
