"""The rollout browser: drawn groups, their expert solutions and token shares, within a limit of bytes.

Rollouts hold no expert solutions, which are read again from the run's own source.
"""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gar.data.rows import source_name
from gar.data.run_problems import evaluation_data, iter_run_problems
from gar.errors import DataError
from gar.records import Run
from gar.report.options import ReportOptions
from gar.report.page import ShownGroup, ShownResponse, ShownRollouts, ShownText, content_json
from gar.report.sample import (
    SEED,
    DrawnGroup,
    Experts,
    ProblemKey,
    draw_groups,
    draw_samples,
    drawing_words,
    readable_prompt,
    samples_words,
    verdict_word,
)
from gar.report.shares import add_shares
from gar.settings import EMBEDDED_TASKS, DataSettings
from gar.types import Problem

NUMBERS = ["alignment", "bonus", "penalty", "reward", "advantage", "num_tokens", "num_scored_tokens", "signal_norm"]
"""Columns of a rollout that the page shows as numbers."""
_MAX_CHARACTERS = 120_000
_SHARE_BYTES = 24
"""Upper bound for a token and its share."""
_DIGITS = 5


def browser_rollouts(runs: Sequence[Run], options: ReportOptions, max_bytes: int) -> ShownRollouts:
    """Draw groups, keep those that fit in `max_bytes` as JSON, and add expert solutions and token shares."""
    most = options.max_rollouts // max(1, sum(bool(run.num_rows) for run in runs))
    drawn = [group for number, run in enumerate(runs) for group in draw_groups(run, number, most)]
    notes: list[str] = []
    num_samples = 0
    for number, run in enumerate(runs):
        groups, count = draw_samples(run, number, options.max_rollouts // len(runs), notes)
        drawn += groups
        num_samples += count
    experts = _expert_problems(runs, drawn, options.problems, notes)
    shown = _fitting(drawn, experts, max_bytes, with_shares=options.token_shares is not None)
    kept = [drawn[place] for place in shown]
    notes.insert(0, drawing_words(runs, _num_rows(kept), _num_rows(drawn)))
    if num_samples:
        notes.insert(1, samples_words(_num_rows(kept, evaluated=True), num_samples))
    if options.token_shares is not None:
        add_shares(shown, runs, drawn, experts, options.token_shares, notes)
    elif shown:
        notes.append("Token shares were not asked for: --token-shares computes them from a model.")
    return ShownRollouts(groups=list(shown.values()), notes=notes)


def _num_rows(groups: Sequence[DrawnGroup], *, evaluated: bool = False) -> int:
    return sum(len(group.rows) for group in groups if (group.moment is not None) == evaluated)


def _expert_problems(
    runs: Sequence[Run], groups: Sequence[DrawnGroup], problems: str | None, notes: list[str]
) -> Experts:
    """The problems of the drawn groups. If its answer differs from the recorded one, a problem is left out.

    `problems` is a file to read in place of the runs' own source. What was not found goes to `notes`.
    """
    experts: dict[ProblemKey, Problem] = {}
    for number, run in enumerate(runs):
        golds: dict[str | None, dict[str, Any]] = {}
        for group in groups:
            if group.run == number:
                golds.setdefault(group.set_name, {})[group.problem[2]] = group.first["gold"]
        if golds and run.config is None:
            notes.append(f"{run.name}: the source of its problems is unknown, so expert solutions are not shown.")
            continue
        for name, gold in golds.items():
            try:
                known = _find_problems(_data_of(run, name), set(gold), problems if name is None else None)
            except DataError as error:
                if (note := f"Expert solutions are not shown: {error}") not in notes:  # runs share their source
                    notes.append(note)
                continue
            same = {key: problem for key, problem in known.items() if gold[key] in (None, problem.answer)}
            experts |= {(number, name, key): problem for key, problem in same.items()}
            if len(same) < len(gold):
                what = run.name if name is None else f"{run.name}, {name}"
                notes.append(
                    f"{what}: {len(gold) - len(same)} of {len(gold)} drawn problems were not found in their source "
                    "with the recorded answer. Their expert solutions are not shown."
                )
    return experts


def _data_of(run: Run, name: str | None) -> DataSettings:
    """The source of the problems of training, or of an evaluation set."""
    assert run.config is not None
    if name is None:
        return run.config.data
    for source in run.config.evaluate.sources:
        if source_name(source) == name:
            return evaluation_data(run.config.data, source)
    raise DataError(f"the settings name no evaluation set '{name}'.")


def _find_problems(data: DataSettings, ids: set[str], problems: str | None) -> dict[str, Problem]:
    source = problems or data.source
    if source not in EMBEDDED_TASKS and not Path(source).exists():
        raise DataError(f"there is no '{source}' here, and a report fetches nothing. Name a file with --problems.")
    read = iter_run_problems(data.model_copy(update={"source": source}))
    return {problem.id: problem for problem in read if problem.id in ids}


def _fitting(
    drawn: Sequence[DrawnGroup], experts: Experts, max_bytes: int, *, with_shares: bool
) -> dict[int, ShownGroup]:
    """As many groups as fit, taken in random order, with those of one evaluated problem together.

    The result is keyed by the position in `drawn`, in its order. Texts longer than 120,000 characters are cut, and
    marked as cut. `with_shares` leaves room for token shares.
    """
    keys = [group.problem if group.moment else place for place, group in enumerate(drawn)]
    ranks = dict.fromkeys(keys)
    rank_of = dict(zip(ranks, random.Random(SEED).sample(range(len(ranks)), len(ranks)), strict=True))
    shown: dict[int, ShownGroup] = {}
    for place in sorted(range(len(drawn)), key=lambda place: rank_of[keys[place]]):
        group = _shown(drawn[place], experts)
        max_bytes -= len(content_json(group).encode("utf-8", "replace"))
        if with_shares:
            rows = drawn[place].rows
            max_bytes -= _SHARE_BYTES * sum(row["num_tokens"] or len(row["response"] or "") for row in rows)
        if max_bytes < 0:
            break
        shown[place] = group
    return {place: shown[place] for place in sorted(shown)}


def _shown(drawn: DrawnGroup, experts: Experts) -> ShownGroup:
    first, problem = drawn.first, experts.get(drawn.problem)
    anchors = "\n\n".join(anchor.text for anchor in problem.anchors) if problem else ""

    def text(value: str) -> ShownText:
        return ShownText(text=value[:_MAX_CHARACTERS], num_cut=max(0, len(value) - _MAX_CHARACTERS))

    return ShownGroup(
        run=drawn.run,
        step=drawn.step,
        index=first["group_index"],
        set_name=drawn.set_name,
        moment=drawn.moment,
        problem_id=drawn.problem[2],
        prompt=text(readable_prompt(first["prompt"] or "")),
        gold=first["gold"] if first["gold"] is not None else "",
        expert=text(anchors) if anchors else None,
        responses=[
            ShownResponse(
                index=row["response_index"],
                verdict=verdict_word(row),
                text=text(row["response"] or ""),
                answer=row["answer"],
                numbers={name: _rounded(row.get(name)) for name in NUMBERS},
                truncated=row["truncated"],
            )
            for row in drawn.rows
        ],
    )


def _rounded(value: float | None) -> float | None:
    """The number rounded. None if it is not finite, since JSON has no such numbers."""
    return None if value is None or not math.isfinite(value) else round(value, _DIGITS)
