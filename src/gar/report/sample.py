"""Which rollouts the page holds: whole groups, drawn without a look at how they ended."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gar.report.read import ReadRun
from gar.types import Problem

SEED = 0
_MAX_STEPS = 25

Experts = Mapping[tuple[int, str], Problem]
"""Problems with their expert solutions, by run and problem id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnGroup:
    """The recorded rows of one group, in the order of the responses. `run` is the position of the run."""

    run: int
    step: int
    rows: Sequence[Mapping[str, Any]]

    @property
    def first(self) -> Mapping[str, Any]:
        """Any row, for what all rows share, such as the prompt."""
        return self.rows[0]

    @property
    def problem(self) -> tuple[int, str]:
        """The run and the problem id."""
        return self.run, str(self.first["problem_id"])


def draw_groups(run: ReadRun, number: int, most: int) -> list[DrawnGroup]:
    """Draw whole groups of a run with about `most` rollouts: all of them, or random ones at steps spread evenly.

    Args:
        run: The run.
        number: Its position in the report.
        most: Rollouts to draw; at least one group is drawn where there is any.
    """
    steps = list(run.num_rows)
    if run.num_rollouts <= most:
        return [group for step in steps for group in _groups(run, number, step)]
    first = _groups(run, number, steps[0])
    num_groups = max(1, most * len(first) // max(1, run.num_rows[steps[0]]))
    chosen = _spread(steps, min(_MAX_STEPS, num_groups))
    drawn = []
    for position, step in enumerate(chosen):
        share = (position + 1) * num_groups // len(chosen) - position * num_groups // len(chosen)
        groups = _groups(run, number, step)
        picked = random.Random(f"{SEED}-{step}").sample(range(len(groups)), min(share, len(groups)))
        drawn += [groups[i] for i in sorted(picked)]
    return drawn


def _groups(run: ReadRun, number: int, step: int) -> list[DrawnGroup]:
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in run.rollouts(step):
        groups.setdefault(row["group_index"], []).append(row)
    return [
        DrawnGroup(run=number, step=step, rows=sorted(rows, key=lambda row: row["response_index"]))
        for _, rows in sorted(groups.items())
    ]


def _spread(steps: Sequence[int], count: int) -> list[int]:
    """So many of the steps, spread evenly, with the first and the last."""
    if count >= len(steps):
        return list(steps)
    if count == 1:
        return [steps[-1]]
    return [steps[round(i * (len(steps) - 1) / (count - 1))] for i in range(count)]


def drawing_words(runs: Sequence[ReadRun], num_shown: int, num_drawn: int) -> str:
    """How many rollouts of how many are shown, and how they were chosen."""
    total = sum(run.num_rollouts for run in runs)
    if not total:
        return "No rollouts were recorded."
    if num_shown == total:
        return f"All {total:,} recorded rollouts are shown."
    words = (
        f"Shown are {num_shown:,} of {total:,} recorded rollouts: whole groups, drawn at random (seed {SEED}) at up to "
        f"{_MAX_STEPS} steps of a run, the first and the last among them, spread evenly. Nobody looked at verdict or "
        "alignment when drawing. Numbers and curves outside this page rest on all rollouts."
    )
    if num_shown < num_drawn:
        words += f" {num_drawn - num_shown:,} more were drawn and dropped, at random too, to keep the file small."
    return words


def verdict_word(row: Mapping[str, Any]) -> str:
    """How a response ended, in the words of the filter."""
    if row.get("eligible"):
        return "right"
    if row.get("verified"):
        return "right, not in format"
    return row.get("status") or "not recorded"
