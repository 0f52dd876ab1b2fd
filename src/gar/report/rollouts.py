"""The rollout browser: drawn groups, their expert solutions and token shares, within a number of bytes.

Rollouts hold no expert solutions: those are read again from where the run had them.
"""

import math
import random
from collections.abc import Sequence
from pathlib import Path

from gar.data.run_problems import GENERATED, find_run_problems
from gar.errors import DataError
from gar.report.options import ReportOptions
from gar.report.page import ShownGroup, ShownResponse, ShownRollouts, ShownText, content_json
from gar.report.read import ReadRun
from gar.report.sample import SEED, DrawnGroup, Experts, draw_groups, drawing_words, verdict_word
from gar.report.shares import add_shares
from gar.report.texts import Formulas, readable_prompt, shown_text
from gar.settings import DataSettings
from gar.types import Problem

NUMBERS = (
    "alignment", "bonus", "penalty", "reward", "advantage", "num_tokens", "num_scored_tokens", "signal_norm",
)  # fmt: skip
"""Columns of a rollout that the page shows as numbers."""
MAX_TEXT_CHARACTERS = 120_000
_SHARE_BYTES = 24
"""Upper bound for a token and its share."""
_DIGITS = 5


def browser_rollouts(runs: Sequence[ReadRun], options: ReportOptions, max_bytes: int) -> ShownRollouts:
    """Draw groups, keep what fits into so many bytes, and add what must be looked up or computed."""
    most = options.max_rollouts // max(1, sum(bool(run.num_rows) for run in runs))
    drawn = [group for number, run in enumerate(runs) if run.num_rows for group in draw_groups(run, number, most)]
    notes: list[str] = []
    formulas = Formulas()
    experts = _expert_problems(runs, drawn, options.problems, notes)
    shown = _fitting(drawn, experts, formulas, max_bytes, with_shares=options.token_shares is not None)
    num_shown = sum(len(drawn[place].rows) for place in shown)
    notes.insert(0, drawing_words(runs, num_shown, sum(len(group.rows) for group in drawn)))
    if options.token_shares is not None:
        add_shares(shown, runs, drawn, experts, options.token_shares, notes)
    elif shown:
        notes.append("Token shares were not asked for: --token-shares computes them from a model.")
    return ShownRollouts(groups=list(shown.values()), formulas=formulas.rows, notes=notes)


# Expert solutions.


def _expert_problems(
    runs: Sequence[ReadRun], groups: Sequence[DrawnGroup], problems: str | None, notes: list[str]
) -> Experts:
    """The problems of the drawn groups. One whose answer is not the recorded one is not the run's, and left out.

    Args:
        runs: The runs.
        groups: The groups drawn from them.
        problems: A file to read in place of the runs' own source.
        notes: Receives what could not be found, and why.
    """
    experts: dict[tuple[int, str], Problem] = {}
    for number, run in enumerate(runs):
        golds = {group.problem[1]: group.first["gold"] for group in groups if group.run == number}
        if not golds:
            continue
        if run.config is None:
            notes.append(f"{run.name}: the source of its problems is unknown, so expert solutions are not shown.")
            continue
        try:
            known = _find_problems(run.config.data, set(golds), problems)
        except DataError as error:
            notes.append(f"{run.name}: expert solutions are not shown, since its problems cannot be read: {error}")
            continue
        same = {(number, key): problem for key, problem in known.items() if golds[key] in (None, problem.answer)}
        experts |= same
        if len(same) < len(golds):
            notes.append(
                f"{run.name}: {len(golds) - len(same)} of {len(golds)} drawn problems were not found in their source "
                "with the recorded answer; their expert solutions are not shown."
            )
    return experts


def _find_problems(data: DataSettings, ids: set[str], problems: str | None) -> dict[str, Problem]:
    source = problems or data.source
    if source not in GENERATED and not Path(source).exists():
        raise DataError(f"there is no '{source}' here, and a report fetches nothing. Name a file with --problems.")
    return find_run_problems(data.model_copy(update={"source": source}), ids)


# What is shown of them.


def _fitting(
    drawn: Sequence[DrawnGroup], experts: Experts, formulas: Formulas, max_bytes: int, *, with_shares: bool
) -> dict[int, ShownGroup]:
    """As many groups as fit, taken in random order; by their position in `drawn`, in its order.

    Args:
        drawn: Whole groups. Texts longer than `MAX_TEXT_CHARACTERS` are cut, and say so.
        experts: Problems with their expert solutions.
        formulas: Receives the formulas of the texts.
        max_bytes: Limit for the groups and their formulas as JSON.
        with_shares: Leave room for token shares.
    """
    order = list(range(len(drawn)))
    random.Random(SEED).shuffle(order)
    shown: dict[int, ShownGroup] = {}
    for place in order:
        num_known = len(formulas.rows)
        group = _shown(drawn[place], experts, formulas)
        max_bytes -= len(content_json([group, formulas.rows[num_known:]]).encode("utf-8", "replace"))
        if with_shares:
            rows = drawn[place].rows
            max_bytes -= _SHARE_BYTES * sum(row["num_tokens"] or len(row["response"] or "") for row in rows)
        if max_bytes < 0:
            break
        shown[place] = group
    return {place: shown[place] for place in sorted(shown)}


def _shown(drawn: DrawnGroup, experts: Experts, formulas: Formulas) -> ShownGroup:
    first = drawn.first
    problem = experts.get(drawn.problem)
    anchors = "\n\n".join(anchor.text for anchor in problem.anchors) if problem else ""

    def text(value: str) -> ShownText:
        return shown_text(value, formulas, max_characters=MAX_TEXT_CHARACTERS)

    return ShownGroup(
        run=drawn.run,
        step=drawn.step,
        problem_id=drawn.problem[1],
        prompt=text(readable_prompt(first["prompt"] or "")),
        gold=first["gold"] if first["gold"] is not None else "",
        expert=text(anchors) if anchors else None,
        responses=[
            ShownResponse(
                index=row["response_index"],
                verdict=verdict_word(row),
                text=text(row["response"] or ""),
                answer=row["answer"],
                numbers={name: _rounded(row[name]) for name in NUMBERS},
                truncated=row["truncated"],
            )
            for row in drawn.rows
        ],
    )


def _rounded(value: float | None) -> float | None:
    """Rounded; None also for a number that is not finite, which JSON cannot write."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else round(value, _DIGITS)
