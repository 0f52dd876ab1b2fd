"""Choose the groups of the rollout browser: whole groups at random, within a limit of bytes.

Rollouts do not store expert solutions. They are read again from the run's data source.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gar.data.problems import evaluation_data, iter_problems
from gar.data.rows import source_name
from gar.errors import DataError
from gar.records import Run
from gar.records.rollouts import read_prompt
from gar.records.run import MOMENTS
from gar.report import ReportOptions
from gar.report.page import ShownGroup, ShownResponse, ShownShares, num_bytes, rounded
from gar.report.reasons import reward_reasons, verdict_word
from gar.report.shares import ProblemKey, Rows, key_of, token_shares
from gar.settings import EMBEDDED_TASKS, RewardSettings
from gar.types import Problem

_SEED = 0
_NUMBERS = ["alignment", "bonus", "advantage", "num_tokens", "num_scored_tokens", "signal_norm"]
"""Columns of a rollout that the page shows as numbers."""
_COMPARED_WITH = {"anchor-shuffled": "another problem's expert solution", "anchor-random": "a random vector"}
"""What controls compare with in place of the expert solutions shown."""
_SHARE_BYTES = 32
"""Upper bound for a token and its share."""


def browser_rollouts(runs: Sequence[Run], options: ReportOptions, max_bytes: int) -> tuple[list[ShownGroup], list[str]]:
    """Draw groups that fit in `max_bytes` of JSON, with expert solutions and token shares.

    Returns the groups, and notes on how many were drawn and which are missing.
    """
    shown: list[ShownGroup] = []
    notes: list[str] = []
    most, num_recorded, num_samples = options.max_rollouts // len(runs), 0, 0
    for number, run in enumerate(runs):
        recorded, samples = run.rollouts(["step", "group_index"]), {m: run.samples(m) for m in MOMENTS}
        num_recorded, num_samples = num_recorded + len(recorded), num_samples + sum(map(len, samples.values()))
        notes += [
            f"{run.name}: the samples of the evaluation {moment} training are not shown: none can be read."
            for moment, table in samples.items()
            if run.evaluations[moment] and not len(table)
        ]
        if run.config and (other := _COMPARED_WITH.get(run.config.method)):
            notes.append(f"{run.name}: alignments are with {other}, not with the expert solutions shown.")
        # Draw before reading texts: a long run has more of them than fit into memory.
        drawn = [*_drawn_groups(run, recorded, most), *_drawn_samples(samples, most)]
        problems = _expert_problems(run, [rows for unit in drawn for rows in unit], options.problems, notes)
        # Each run gets an equal share of the bytes that are left, so that one does not crowd out the others.
        room = (max_bytes - num_bytes(shown)) // (len(runs) - number)
        settings = run.config.reward if run.config else None
        units = [[_shown(number, rows, problems, settings) for rows in unit] for unit in drawn]
        kept = _fitting(units, room, _SHARE_BYTES if options.token_shares else 0)
        groups = [group for place in kept for group in units[place]]
        if options.token_shares:
            rows = [rows for place in kept for rows in drawn[place]]
            groups = [*map(_with_shares, groups, token_shares(run, rows, problems, notes))]
        shown += groups
    return shown, [*_drawing_notes(shown, num_recorded, num_samples), *notes]


def _drawn_groups(run: Run, recorded: pa.Table, most: int) -> Iterator[list[Rows]]:
    """Draw whole groups of a run, at most `most` rollouts in all, but at least one group."""
    chosen = _drawn(recorded, most)
    for table in run.rollout_tables(steps={step for step, _ in chosen}):
        places = zip(table["step"].to_pylist(), table["group_index"].to_pylist(), strict=True)
        drawn = table.filter(pa.array([place in chosen for place in places]))
        yield from ([group] for group in _by_group(drawn))


def _drawn_samples(samples: Mapping[str, pa.Table], most: int) -> Iterator[list[Rows]]:
    """Draw problems of each evaluation set, with all their samples before and after training."""
    chosen = _drawn(pa.concat_tables(table.select(["set_name", "group_index"]) for table in samples.values()), most)
    units: dict[tuple[str, int], list[Rows]] = {key: [] for key in sorted(chosen)}
    for moment, table in samples.items():
        asked = pc.field("group_index").isin({index for _, index in chosen})
        for rows in _by_group(table.filter(asked)):
            if (key := (rows[0]["set_name"], rows[0]["group_index"])) in units:
                units[key].append([{**row, "moment": moment} for row in rows])
    yield from units.values()


def _drawn(rows: pa.Table, most: int) -> set[tuple[Any, int]]:
    """Draw pairs of these two columns at random, at most `most` rows in all."""
    sizes = rows.to_pandas().groupby(rows.column_names).size().sample(frac=1, random_state=_SEED)
    return {*sizes.index[(sizes.cumsum() <= most) | (np.arange(len(sizes)) == 0)]}


def _by_group(table: pa.Table) -> Iterator[Rows]:
    """Split rows by step or set and group, and sort each group by response."""
    names = [name for name in ("step", "set_name", "group_index", "response_index") if name in table.column_names]
    rows = table.sort_by([(name, "ascending") for name in names]).to_pylist()
    for _, group in itertools.groupby(rows, lambda row: (row.get("step"), row.get("set_name"), row["group_index"])):
        yield [{"eligible": row["verified"] and row["well_formatted"]} | row for row in group]


def _fitting(units: Sequence[Sequence[ShownGroup]], room: int, token_bytes: int) -> list[int]:
    """Take units in random order until the room is full. Returns their places, sorted."""
    kept = list[int]()
    for place in random.Random(_SEED).sample(range(len(units)), len(units)):
        room -= num_bytes(units[place])
        room -= token_bytes * sum(int(each.numbers["num_tokens"] or 0) for each in _responses(units[place]))
        if room < 0:
            break
        kept.append(place)
    return sorted(kept)


def _responses(groups: Sequence[ShownGroup]) -> Iterator[ShownResponse]:
    return (response for group in groups for response in group.responses)


def _shown(
    number: int, rows: Rows, problems: Mapping[ProblemKey, Problem], settings: RewardSettings | None
) -> ShownGroup:
    # Chat messages are shown as text, with their roles.
    first, problem = rows[0], problems.get(key_of(rows))
    prompt = read_prompt(first["prompt"])
    if not isinstance(prompt, str):
        prompt = "\n\n".join(f"{message['role']}:\n{message['content']}" for message in prompt)
    return ShownGroup(
        run=number,
        step=first.get("step"),
        index=first["group_index"],
        set_name=first.get("set_name"),
        moment=first.get("moment"),
        problem_id=first["problem_id"],
        prompt=prompt,
        gold=first["gold"],
        expert="\n\n".join(anchor.text for anchor in problem.anchors) if problem else "",
        responses=[
            ShownResponse(
                index=row["response_index"],
                verdict=verdict_word(row),
                text=row["response"],
                answer=row["answer"],
                reward=reason,
                numbers={name: rounded(row.get(name)) for name in _NUMBERS},
                truncated=row["truncated"],
            )
            for row, reason in zip(rows, reward_reasons(rows, settings), strict=True)
        ],
    )


def _with_shares(group: ShownGroup, shares: Sequence[ShownShares | None] | None) -> ShownGroup:
    pairs = zip(group.responses, shares or [None] * len(group.responses), strict=True)
    return replace(group, responses=[replace(response, shares=each) for response, each in pairs])


def _expert_problems(
    run: Run, drawn: Sequence[Rows], problems: str | None, notes: list[str]
) -> dict[ProblemKey, Problem]:
    """Read the problems of the drawn groups, and leave out those with a different answer than recorded.

    `problems` is a file to read instead of the run's source. Missing problems are added to `notes`.
    """
    experts: dict[ProblemKey, Problem] = {}
    golds: dict[str | None, dict[str, str]] = {}
    for rows in drawn:
        name, problem_id = key_of(rows)
        golds.setdefault(name, {})[problem_id] = rows[0]["gold"]
    for name, gold in golds.items():
        try:
            known = _read_problems(run, name, problems if name is None else None)
            same = {(name, each.id): each for each in known if gold.get(each.id) == each.answer}
        except DataError as error:
            if (note := f"Expert solutions are not shown: {error}") not in notes:  # runs share their source
                notes.append(note)
            continue
        experts |= same
        if len(same) < len(gold):
            what = run.name if name is None else f"{run.name}, {name}"
            notes.append(
                f"{what}: {len(gold) - len(same)} of {len(gold)} drawn problems were not found in their source "
                "with the recorded answer. Their expert solutions are not shown."
            )
    return experts


def _read_problems(run: Run, name: str | None, problems: str | None) -> Iterator[Problem]:
    """Read the problems of training or of an evaluation set, from the run's source or the named file."""
    if run.config is None:
        raise DataError(f"the settings of {run.name} name no source of its problems.")
    data = run.config.data
    if name is not None:
        sources = [source for source in run.config.evaluate.sources if source_name(source) == name]
        if not sources:
            raise DataError(f"the settings name no evaluation set '{name}'.")
        data = evaluation_data(data, sources[0])
    source = problems or data.source
    if source not in EMBEDDED_TASKS and not Path(source).exists():
        raise DataError(f"there is no '{source}' here, and a report fetches nothing. Name a file with --problems.")
    yield from (problem for _, problem in iter_problems(source, data))


def _drawing_notes(shown: Sequence[ShownGroup], num_recorded: int, num_samples: int) -> list[str]:
    """Describe how many rollouts and samples are shown, and how they were chosen."""
    num_shown = [sum(len(group.responses) for group in shown if bool(group.moment) == of) for of in (False, True)]
    kinds = ((num_shown[0], num_recorded, "recorded rollouts"), (num_shown[1], num_samples, "samples of evaluations"))
    notes = [
        f"Shown: {'all' if count == total else f'{count:,} of'} {total:,} {what}."
        for count, total, what in kinds
        if total
    ]
    if not num_recorded:
        notes.insert(0, "No rollouts were recorded.")
    if sum(num_shown) < num_recorded + num_samples:
        notes.append(
            f"The others were left out at random (seed {_SEED}), without regard to verdict or alignment. Groups are "
            "shown whole, and a problem of an evaluation with all its samples, before and after. Numbers and curves "
            "outside this list use everything."
        )
    return notes
