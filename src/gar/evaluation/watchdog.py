"""A look at every step's rollouts: has the policy collapsed, so that the rest of the budget would be wasted?

The preflight looks before the first step. A policy can also collapse later: end every response at once, never end one,
or lose the task. Training then goes on without an error, and the loss says nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gar.errors import CollapseError
from gar.records import RolloutRecord
from gar.settings import WatchdogSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Collapse:
    """What was wrong with every response of some steps in a row.

    Example: Collapse(kind="empty", first_step=31, last_step=50, text="For 20 steps (31 to 50) ...")
    """

    kind: str
    first_step: int
    last_step: int
    text: str


_FAULTS: dict[str, tuple[Callable[[RolloutRecord], bool], str, str]] = {
    "empty": (
        lambda row: not row.response.strip(),
        "every response was empty",
        "The policy has learnt to end at once, often because the learning rate is too high, or because an empty "
        "response costs less than a wrong one. Lower --trl.learning_rate, or give the KL term a weight (--trl.beta).",
    ),
    "cut off": (
        lambda row: row.truncated,
        "every response was cut off at trl.max_completion_length",
        "The policy does not end its responses any more, often because it repeats itself or because the limit is too "
        "short for what it has learnt to write. Read some; lower --trl.learning_rate, or raise the limit.",
    ),
    "none right": (
        lambda row: not row.eligible,
        "no response was right and well formatted",
        "Groups without a right answer teach little but the format. The policy has lost the task or the format, or the "
        "problems are too hard. Read some; lower --trl.learning_rate, or take easier problems.",
    ),
}
"""By kind, the most telling first: what holds of every response then, in words, and its likely cause with advice."""


class Watchdog:
    """Counts the steps in a row in which something was wrong with every response.

    Args:
        settings: After how many steps to speak, and whether to stop.
        tell: Receives the first collapse; there is no second telling.
    """

    def __init__(self, settings: WatchdogSettings, tell: Callable[[Collapse], None]):
        self._settings = settings
        self._tell = tell
        self._since: dict[str, int] = {}
        self._told = False

    def look(self, step: int, rows: Sequence[RolloutRecord]) -> None:
        """Take notice of the rollouts of one generation, those of all ranks.

        Args:
            step: The optimiser step that they are for.
            rows: Its rollouts.

        Raises:
            CollapseError: The policy has collapsed, and the mode is "stop".
        """
        if self._settings.mode == "off" or not rows:
            return
        for kind, (holds, _, _) in _FAULTS.items():
            if all(holds(row) for row in rows):
                self._since.setdefault(kind, step)
            else:
                self._since.pop(kind, None)
        lasting = [kind for kind in _FAULTS if step - self._since.get(kind, step + 1) + 1 >= self._settings.steps]
        if not lasting or self._told:
            return
        self._told = True
        collapse = _collapse(lasting[0], self._since[lasting[0]], step)
        self._tell(collapse)
        if self._settings.mode == "stop":
            raise CollapseError(f"{collapse.text} To train on all the same: --watchdog.mode warn.")


def _collapse(kind: str, first: int, last: int) -> Collapse:
    _, what, cause = _FAULTS[kind]
    count = last - first + 1
    text = f"For {count} step{'s' if count > 1 else ''} ({first} to {last}) {what}. {cause}"
    return Collapse(kind=kind, first_step=first, last_step=last, text=text)
