"""The numbers of the page: tiles for a single run, tables of tests and verdicts, and a line for each run."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gar.analysis.summary import edges, summarize
from gar.evaluation.text_tables import p_text, rows_of
from gar.records import Run
from gar.records.run import MOMENTS
from gar.report.groups import RunGroup
from gar.report.page import Column, Table, Tile, columns
from gar.report.sample import verdict_word

NONE = "–"
"""The cell of an unknown value."""
_COURSE = {"steps": "steps", "rollouts": "rollouts", "right": "right", "alignment": "alignment"}
_COURSE |= {"zero-std groups": "zero std", "seconds per step": "step time", "GAR’s share": "gar share"}
"""How training went: headings with their definitions."""


def summary_tables(
    groups: Sequence[RunGroup],
    counts: Sequence[Counter[str]],
    changes: pd.DataFrame,
    contests: pd.DataFrame,
) -> list[Table]:
    """The tables of the summary, without empty ones. `counts` has the `verdict_counts` of every run."""
    runs = [run for group in groups for run in group.runs]
    first, labels = groups[0].label, [*dict.fromkeys(contests["label"])]
    tables = [
        _contrast_table(
            contests,
            f"{labels[0]} against {first}" if len(labels) == 1 else f"Against {first}",
            "After training, paired by seed.",
            [*columns(**{first: "pass@k"}), *columns(**{"these runs": "pass@k"})],
        ),
        _contrast_table(
            changes,
            "Before and after training",
            "The same runs before the first step and after the last.",
            columns(before="before", after="after"),
        ),
        _status_table(runs, counts),
    ]
    return [table for table in tables if table]


def tiles(run: Run) -> list[Tile]:
    """The main numbers of one run."""
    steps, rollouts, right, alignment, zero_std, seconds, share = _course(run)
    tenths = "first and last tenth"
    return [
        Tile(term="steps", label="Steps", value=steps, detail=f"{rollouts} rollouts"),
        Tile(term="right", label="Right and in format", value=right, detail=tenths),
        Tile(term="alignment", label="Alignment when right", value=alignment, detail=tenths),
        Tile(term="zero std", label="Zero-std groups", value=zero_std, detail="by outcome alone, with the bonus"),
        Tile(term="step time", label="Seconds per step", value=seconds, detail=f"of which GAR {share}"),
    ]


def runs_table(runs: Sequence[Run]) -> Table:
    """One line for each run. Runs of one name are told apart by their paths."""
    names = [run.name for run in runs]
    measured = dict.fromkeys(
        (name, k)
        for run in runs
        for moment in MOMENTS
        for name, part in run.evaluations[moment].items()
        for k in sorted(part.known_rates)
    )
    return Table(
        title="Runs",
        caption="Two numbers: of pass@k, before and after training. Of right responses and their alignment, in the "
        "first and the last tenth of the steps. Of zero-std groups, by outcome alone and with the bonus.",
        columns=[
            *columns("run", "tags", "status", "method", "model", "problems", seed="seed", **_COURSE),
            *columns(**{f"{name} pass@{k}": "pass@k" for name, k in measured}),
            *columns("start"),
        ],
        rows=[
            [
                run.name if names.count(run.name) == 1 else str(run.path),
                ", ".join(tags(run)),
                _known(run.record.get("status")),
                _known(run.settings.get("method")),
                _known(section_of(run, "model").get("path")),
                _known(section_of(run, "data").get("source")),
                _known(run.seed),
                *_course(run),
                *(_arrow([_pass_rate(run, moment, *column) for moment in MOMENTS], ".3f") for column in measured),
                _known(run.record.get("start_time"))[:16].replace("T", " "),
            ]
            for run in runs
        ],
    )


def tags(run: Run) -> list[str]:
    """Tags of a run, from its settings."""
    values = section_of(run, "records").get("tags")
    return [str(tag) for tag in values] if isinstance(values, list | tuple) else []


def section_of(run: Run, name: str) -> Mapping[str, Any]:
    """A section of a run's settings. Empty if it has none."""
    section = run.settings.get(name)
    return section if isinstance(section, Mapping) else {}


def verdict_counts(run: Run) -> Counter[str]:
    """Responses of all rollouts by how they ended."""
    counts: Counter[str] = Counter()
    columns = ["eligible", "verified", "status"]
    for row in run.rollouts(columns).group_by(columns).aggregate([([], "count_all")]).to_pylist():
        counts[verdict_word(row)] += row["count_all"]
    return counts


def _course(run: Run) -> list[str]:
    """How training went, in the order of `_COURSE`."""
    known = summarize(run)
    return [
        f"{run.last_step:,}",
        f"{sum(run.num_rows.values()):,}",
        _arrow(edges(run.metrics, "gar/eligible_fraction"), ".0%"),
        _arrow([*known["alignment_mean"].values()], ".2f"),
        _arrow([*known["zero_std_group_fraction"].values()], ".0%"),
        _text(known["step_seconds"], ".2f"),
        _text(known["gar_time_fraction"], ".0%"),
    ]


def _status_table(runs: Sequence[Run], counts: Sequence[Counter[str]]) -> Table | None:
    """How the responses ended, over all recorded rollouts."""
    words = sorted({word for count in counts for word in count}, key=lambda word: (word != "right", word))
    if not words:
        return None
    rows = [
        [run.name, *(f"{count[word]:,} ({count[word] / max(1, count.total()):.0%})" for word in words)]
        for run, count in zip(runs, counts, strict=True)
        if count
    ]
    named = columns("run", **dict.fromkeys(words, "verdict of a response"))
    return Table(title="How responses ended", caption="All recorded rollouts.", columns=named, rows=rows)


def _contrast_table(contrasts: pd.DataFrame, title: str, caption: str, headings: Sequence[Column]) -> Table | None:
    """The contrasts as tested. None without any."""
    if contrasts.empty:
        return None
    tested = {"difference": "difference", "95% interval": "interval", "p": "p-value", "detectable": "detectable"}
    named = [
        *columns("runs", "set", k="pass@k"),
        *headings,
        *columns(**tested, seeds="seeds", problems="problems"),
        Column(heading="verdict", term="verdict", kind="verdict"),
    ]
    rows = [
        [
            contrast.label,
            contrast.set_name,
            str(contrast.k),
            f"{contrast.reference:.3f}",
            f"{contrast.score:.3f}",
            _signed(contrast.difference),
            NONE if contrast.all_equal else f"{_signed(contrast.low)} to {_signed(contrast.high)}",
            NONE if math.isnan(contrast.p_corrected) else p_text(contrast.p_corrected),
            "> 1" if contrast.detectable > 1 else _text(contrast.detectable, ".2f"),
            str(contrast.num_seeds),
            str(contrast.num_problems),
            contrast.verdict,
        ]
        for contrast in rows_of(contrasts)
    ]
    if len({*contrasts["label"]}) == 1:  # the title names the group
        named, rows = named[1:], [row[1:] for row in rows]
    return Table(title=title, caption=caption, columns=named, rows=rows)


def _pass_rate(run: Run, moment: str, name: str, k: int) -> float | None:
    part = run.evaluations[moment].get(name)
    return part.known_rates.get(k) if part else None


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _arrow(pair: Sequence[float | None], form: str) -> str:
    first, last = (_text(value, form) for value in pair)
    return NONE if first == last == NONE else f"{first} → {last}"


def _text(value: float | None, form: str) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:{form}}".replace("-", "−")


def _known(value: Any) -> str:
    return NONE if value is None else str(value)
