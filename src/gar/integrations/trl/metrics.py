"""Where the seconds of an optimizer step went."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback

PARTS = ("generation", "verification", "gar")


class StepTimer(TrainerCallback):
    """Splits the seconds of an optimizer step into generation, verification, GAR and the rest, the update.

    Args:
        metrics: The trainer's own lists of metrics, by name.
    """

    def __init__(self, metrics: dict[str, list[float]]):
        self._metrics = metrics
        self._seconds: dict[str, float] = {}
        self._start = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what runs inside as a part of the step, one of `PARTS`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._seconds.clear()
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log the step's seconds."""
        total = time.perf_counter() - self._start
        parts = {name: self._seconds.get(name, 0.0) for name in PARTS}
        for name, seconds in {"step": total, **parts, "update": total - sum(parts.values())}.items():
            self._metrics[f"time/{name}_seconds"].append(seconds)
