"""Watch every step's rollouts for a collapse of the policy, after which training would be wasted.

For `GARTrainer`: `GARTrainer(..., on_rollouts=Watchdog(WatchdogSettings(mode="stop")).look)`.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gar.errors import CollapseError
from gar.settings import WatchdogSettings
from gar.step import Step

if TYPE_CHECKING:  # records import pyarrow, which slime's container may lack
    from gar.records import RolloutRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Collapse:
    """A fault of every response of consecutive steps."""

    kind: str
    first_step: int
    last_step: int
    text: str


_FAULTS = {
    "empty": "every response was empty. The policy has learned to end at once, often because the learning rate is too "
    "high, or because an empty response costs less than a wrong one. Lower the rate, or give the KL term a weight.",
    "cut off": "every response was cut off at the length limit. The policy does not end its responses any more, often "
    "because it repeats itself or because the limit is too short for what it has learned to write. Read some. Lower "
    "the learning rate, or raise the limit.",
    "none right": "no response was right and well formatted. Groups without a right answer teach little but the "
    "format. The policy has lost the task or the format, or the problems are too hard. Read some. Lower the learning "
    "rate, or take easier problems.",
}
"""Causes and advice by kind, the most informative first."""


def warn(collapse: Collapse) -> None:
    """Issue the collapse as a warning."""
    warnings.warn(f"WATCHDOG: {collapse.text}", stacklevel=2)


class Watchdog:
    """Counts consecutive steps in which all responses have the same fault.

    Args:
        settings: After how many steps to call `tell`, and whether to stop.
        tell: Receives the first collapse, once.
    """

    def __init__(self, settings: WatchdogSettings, tell: Callable[[Collapse], None] = warn):
        self._settings = settings
        self._tell = tell
        self._since: dict[str, int] = {}
        self._told = False

    def look(self, step: int, rows: "Sequence[RolloutRecord]") -> None:
        """Count the rollouts of all ranks for one step under TRL. With mode "stop", raise `CollapseError`."""
        self._count(step, [(not row.response.strip(), row.truncated, row.eligible) for row in rows])

    def look_at(self, step: int, responses: Step) -> None:
        """`look` for the responses of all ranks under any engine."""
        pairs = zip(responses.facts, responses.eligible.tolist(), strict=True)
        self._count(step, [(fact.empty, fact.truncated, right) for fact, right in pairs])

    def _count(self, step: int, responses: Sequence[tuple[bool, bool, bool]]) -> None:
        """Count a step: which responses are empty, which are cut off, which are right."""
        if self._settings.mode == "off" or not responses:
            return
        empty, cut_off, right = zip(*responses, strict=True)
        for kind, is_true in zip(_FAULTS, (all(empty), all(cut_off), not any(right)), strict=True):
            if is_true:
                self._since.setdefault(kind, step)
            else:
                self._since.pop(kind, None)
        lasting = [kind for kind in _FAULTS if step - self._since.get(kind, step + 1) + 1 >= self._settings.steps]
        if not lasting or self._told:
            return
        self._told = True
        first, count = self._since[lasting[0]], step - self._since[lasting[0]] + 1
        text = f"For {count} step{'s' if count > 1 else ''} ({first} to {step}) {_FAULTS[lasting[0]]}"
        self._tell(Collapse(kind=lasting[0], first_step=first, last_step=step, text=text))
        if self._settings.mode == "stop":
            raise CollapseError(f"{text} To continue anyway, set watchdog.mode to warn.")
