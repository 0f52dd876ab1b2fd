"""Watch every step's rollouts for a fault of all responses, with which training is wasted."""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch.distributed as dist

from gar.errors import CollapseError
from gar.settings import WatchdogSettings
from gar.step import Step
from gar.types import Status

if TYPE_CHECKING:  # records import pyarrow, which slime's container may lack
    from gar.records import RolloutRecord


_FAULTS = {
    "empty": "every response was empty. At the start the prompt may lack its chat template. Later the policy has "
    "learned to end at once, often because the learning rate is too high, or because an empty response costs less than "
    "a wrong one. Lower the rate, or give the KL term a weight.",
    "cut off": "every response was cut off at the length limit. The limit is shorter than what the policy writes, or "
    "the policy repeats itself. Read some. Raise the limit, or lower the learning rate.",
    "unparsed": "no response had an answer that can be read, or the deciding reward function returned None for all. "
    "Read some. Ask for a different form of answer in the prompt, or look at that function.",
    "none right": "no response was right and well formatted. Groups without a right answer teach little but the "
    "format. The problems are too hard, their gold answers do not fit, or the policy has lost the task or the format. "
    "Read some. Take easier problems, or lower the learning rate.",
}
"""Causes and advice by kind, the most informative first."""

_AT_START = 3
"""Steps after which a fault of every response since the start is reported."""


def warn(text: str) -> None:
    """Issue a warning, on one rank."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        warnings.warn(f"WATCHDOG: {text}", stacklevel=2)


class Watchdog:
    """Counts consecutive steps in which all responses have the same fault.

    Args:
        settings: After how many steps to call `tell`, and whether to stop. At the start of a run three steps are enough
            to call it.
        tell: Receives a text about the first fault of each kind.
    """

    def __init__(self, settings: WatchdogSettings, tell: Callable[[str], None] = warn):
        self._settings = settings
        self._tell = tell
        self._since: dict[str, int] = {}
        self._first: int | None = None
        self._told: set[str] = set()

    def watch_records(self, step: int, rows: "Sequence[RolloutRecord]") -> None:
        """Count the rollouts of all ranks for one step under TRL. With mode "stop", raise `CollapseError`."""
        self._count(step, [(not row.response.strip(), row.truncated, row.status, row.eligible) for row in rows])

    def watch(self, step: int, responses: Step) -> None:
        """`watch_records` for the responses of all ranks under any engine."""
        pairs = zip(responses.facts, responses.eligible.tolist(), strict=True)
        self._count(step, [(fact.empty, fact.truncated, fact.verdict.status, right) for fact, right in pairs])

    def _count(self, step: int, responses: Sequence[tuple[bool, bool, str, bool]]) -> None:
        """Count a step: which responses are empty, which are cut off, how they were verified, which are right."""
        if self._settings.mode == "off" or not responses:
            return
        empty, cut_off, statuses, right = zip(*responses, strict=True)
        unparsed = all(status == Status.UNPARSED for status in statuses)
        self._first = step if self._first is None else self._first
        for kind, is_true in zip(_FAULTS, (all(empty), all(cut_off), unparsed, not any(right)), strict=True):
            if is_true:
                self._since.setdefault(kind, step)
            else:
                self._since.pop(kind, None)
        for kind in filter(self._since.__contains__, _FAULTS):
            first, count = self._since[kind], step - self._since[kind] + 1
            lasts = count >= self._settings.steps
            if lasts or (first == self._first and count >= _AT_START):
                self._report(kind, first, step, stops=lasts and self._settings.mode == "stop")
                return

    def _report(self, kind: str, first: int, last: int, *, stops: bool) -> None:
        count = last - first + 1
        text = f"For {count} step{'s' if count > 1 else ''} ({first} to {last}) {_FAULTS[kind]}"
        if kind not in self._told:
            self._told.add(kind)
            self._tell(text)
        if stops:
            raise CollapseError(f"{text} To continue anyway, set watchdog.mode to warn.")


SAMPLING_RATIO = "sampling/importance_sampling_ratio/mean"
"""TRL's metric: the mean ratio of the policy's to vLLM's probabilities."""


def ratio_fault(ratio: float) -> str | None:
    """A sentence on a mean ratio far from 1, None for a good one."""
    low, high = 0.9, 1.1
    if low <= ratio <= high:
        return None
    return (
        f"the mean importance sampling ratio is {ratio:.3g}, expected {low} to {high}. It multiplies the loss: the "
        "policy and vLLM give the sampled tokens different probabilities. Are the weights of both the same, and their "
        "dtypes? Does a sampling setting change the probabilities?"
    )


class SamplingWatch:
    """Warns once if responses are sampled from other probabilities than the policy's, by the mean ratio of both."""

    def __init__(self, tell: Callable[[str], None] = warn):
        self._tell, self._told = tell, False

    def watch(self, step: int, ratio: float) -> None:
        """Look at a step's mean ratio."""
        fault = ratio_fault(ratio)
        if fault and not self._told:
            self._told = True
            self._tell(f"In step {step} {fault}")


class PromptWatch:
    """Warns once of a prompt that leaves less than `max_new_tokens` of the model's context, None for no limit."""

    def __init__(self, context: int | None, max_new_tokens: int, tell: Callable[[str], None] = warn):
        self._context, self._new, self._tell, self._told = context, max_new_tokens, tell, False

    def watch(self, longest: int) -> None:
        """Look at a batch's longest prompt, in tokens."""
        if self._told or self._context is None or longest + self._new <= self._context:
            return
        self._told = True
        self._tell(
            f"A prompt has {longest} tokens and its response up to {self._new}, and the model's context is "
            f"{self._context} tokens. Responses beyond it have no meaning and no alignment: drop long prompts, or "
            "lower max_completion_length."
        )
