"""Draw rollouts and evaluation samples for the page: whole groups, whatever their verdicts."""

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gar.records import Run
from gar.types import Problem, Prompt

SEED = 0
_MAX_STEPS = 25

Moment = Literal["before", "after"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)

ProblemKey = tuple[int, str | None, str]
"""Position of the run, evaluation set (None: the training problems) and problem id."""

Experts = Mapping[ProblemKey, Problem]
"""Problems with their expert solutions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnGroup:
    """The recorded rows of one group, in the order of the responses. `run` is the position of the run in the report.

    The step is None for an evaluation, set and moment are None for training.
    """

    run: int
    rows: Sequence[Mapping[str, Any]]
    step: int | None = None
    set_name: str | None = None
    moment: Moment | None = None

    @property
    def first(self) -> Mapping[str, Any]:
        """The first row, for values that all rows share, such as the prompt."""
        return self.rows[0]

    @property
    def problem(self) -> ProblemKey:
        """The problem, with its run and set."""
        return self.run, self.set_name, str(self.first["problem_id"])


def draw_groups(run: Run, number: int, most: int) -> list[DrawnGroup]:
    """Draw whole groups of a run with about `most` rollouts: all of them, or random ones at steps spread evenly.

    At least one group is drawn if there is any. `number` is the position of the run in the report.
    """
    steps = [*run.num_rows]
    if not steps:
        return []
    per_step = len(run.rollouts(["group_index"], steps[:1])["group_index"].unique())
    num_groups = max(1, most * per_step // run.num_rows[steps[0]])
    chosen = np.linspace(len(steps) - 1, 0, min(_MAX_STEPS, num_groups, len(steps))).round().astype(int)[::-1]
    if sum(run.num_rows.values()) <= most:
        return [group for step in steps for group in _groups(run, number, step)]
    drawn: list[DrawnGroup] = []
    for position, step in enumerate(steps[i] for i in chosen):
        share = (position + 1) * num_groups // len(chosen) - position * num_groups // len(chosen)
        groups = _groups(run, number, step)
        picked = random.Random(f"{SEED}-{step}").sample(range(len(groups)), min(share, len(groups)))
        drawn += [groups[i] for i in sorted(picked)]
    return drawn


def draw_samples(run: Run, number: int, most: int, notes: list[str]) -> tuple[list[DrawnGroup], int]:
    """Draw problems of each evaluation set at random, with all their samples before and after training.

    At least one problem of each set is drawn. Returns the groups, and the number of samples of the run. What cannot be
    read goes to `notes`.
    """
    tables: dict[Moment, pa.Table] = {moment: run.samples(moment) for moment in MOMENTS}
    notes += [
        f"{run.name}: the samples of the evaluation {moment} training are not shown: none can be read."
        for moment in MOMENTS
        if run.evaluations[moment] and not len(tables[moment])
    ]
    columns = [[table[name].to_pylist() for name in ("set_name", "problem_id")] for table in tables.values()]
    keys = {key for names, ids in columns for key in zip(names, ids, strict=True)}
    names = sorted({name for name, _ in keys})
    total, drawn = sum(map(len, tables.values())), []
    for name in names:
        ids = sorted(key for set_name, key in keys if set_name == name)
        parts: dict[Moment, pa.Table] = {m: table.filter(pc.field("set_name") == name) for m, table in tables.items()}
        per_problem = sum(map(len, parts.values())) / len(ids)
        count = min(len(ids), max(1, int(most / len(names) / per_problem)))
        picked = random.Random(f"{SEED}-{name}").sample(ids, count)
        drawn += [
            DrawnGroup(run=number, rows=rows, set_name=name, moment=moment)
            for moment, part in parts.items()
            for rows in _by_group(part.filter(pc.field("problem_id").isin(picked)))
        ]
    return drawn, total


def _by_group(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """Rows of each group, in the order of groups and responses."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in table.sort_by([("group_index", "ascending"), ("response_index", "ascending")]).to_pylist():
        sampled = {"eligible": row["verified"] and row["well_formatted"]}
        groups.setdefault(row["group_index"], []).append(sampled | row)
    yield from groups.values()


def _groups(run: Run, number: int, step: int) -> list[DrawnGroup]:
    return [DrawnGroup(run=number, step=step, rows=rows) for rows in _by_group(run.rollouts(steps=[step]))]


def drawing_words(runs: Sequence[Run], num_shown: int, num_drawn: int) -> str:
    """A sentence on how many rollouts are shown, and how they were chosen."""
    total = sum(sum(run.num_rows.values()) for run in runs)
    if not total:
        return "No rollouts were recorded."
    if num_shown == total:
        return f"All {total:,} recorded rollouts are shown."
    words = (
        f"This page shows {num_shown:,} of {total:,} recorded rollouts: whole groups, drawn at random (seed {SEED}) "
        f"without regard to verdict or alignment. They come from up to {_MAX_STEPS} steps of a run, spread evenly. "
        "Numbers and curves outside this page use all rollouts."
    )
    if num_shown < num_drawn:
        words += f" {num_drawn - num_shown:,} more were drawn, and dropped at random to keep the file small."
    return words


def samples_words(num_shown: int, total: int) -> str:
    """A sentence on how many evaluation samples are shown, and how they were chosen."""
    if num_shown == total:
        return f"All {total:,} samples of the evaluations before and after training are shown."
    return (
        f"The evaluations show {num_shown:,} of {total:,} samples: all samples, before and after, of problems drawn at "
        f"random (seed {SEED})."
    )


def verdict_word(row: Mapping[str, Any]) -> str:
    """How a response ended, in the words of the filter."""
    if row.get("eligible"):
        return "right"
    if row.get("verified"):
        return "right, not in format"
    return row.get("status") or "not recorded"


def recorded_prompt(prompt: str) -> Prompt:
    """Parse chat messages, which are recorded as the text of a Python list. Any other prompt is returned unchanged."""
    if not prompt.startswith("[{'"):
        return prompt
    try:
        messages = ast.literal_eval(prompt)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return prompt
    whole = isinstance(messages, list) and all(
        isinstance(message, dict) and {"role", "content"} <= message.keys() for message in messages
    )
    return messages if whole else prompt


def readable_prompt(prompt: str) -> str:
    """A recorded prompt for readers, with chat messages one below the other."""
    messages = recorded_prompt(prompt)
    if isinstance(messages, str):
        return messages
    return "\n\n".join(f"{message['role']}:\n{message['content']}" for message in messages)
