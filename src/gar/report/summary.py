"""The numbers of the summary: tiles for a single run, and tables."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from gar.analysis.summary import gar_time_fraction, logged, mean_of
from gar.evaluation.text_tables import p_text, rows_of
from gar.records import Run
from gar.report.groups import RunGroup
from gar.report.page import Column, Table, Tile, columns
from gar.report.sample import verdict_word
from gar.report.verdicts import signed

NONE = "–"
"""The cell of an unknown value."""
_EDGE_FRACTION = 0.1
_COURSE_TERMS = {"zero-std groups": "zero std", "seconds per step": "step time", "GAR’s share": "gar share"}


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
        _recorded_table(groups, changes),
        _course_table(runs) if len(runs) > 1 else None,
        _status_table(runs, counts),
    ]
    return [table for table in tables if table]


def tiles(run: Run) -> list[Tile]:
    """The main numbers of one run."""
    course, tenths = _course(run), "first and last tenth"
    return [
        Tile(term="steps", label="Steps", value=course["steps"], detail=f"{course['rollouts']} rollouts"),
        Tile(term="right", label="Right and in format", value=course["right"], detail=tenths),
        Tile(term="alignment", label="Alignment when right", value=course["alignment"], detail=tenths),
        Tile(term="zero std", label="Zero-std groups", value=course["zero-std groups"],
             detail="by outcome alone, with the bonus"),
        Tile(term="step time", label="Seconds per step", value=course["seconds per step"],
             detail=f"of which GAR {course['GAR’s share']}"),
    ]  # fmt: skip


def verdict_counts(run: Run) -> Counter[str]:
    """Responses of all rollouts by how they ended."""
    counts: Counter[str] = Counter()
    columns = ["eligible", "verified", "status"]
    for row in run.rollouts(columns).group_by(columns).aggregate([([], "count_all")]).to_pylist():
        counts[verdict_word(row)] += row["count_all"]
    return counts


def _recorded_table(groups: Sequence[RunGroup], tested: pd.DataFrame) -> Table | None:
    """pass@k as recorded, if no test was possible."""
    done = {*zip(tested["label"], tested["set_name"], tested["k"], strict=True)}
    rows = []
    for group in groups:
        for run in group.runs:
            before, after = (dict(run.evaluations[moment]) for moment in ("before", "after"))
            for name in before | after:
                values = [sets[name].known_rates if name in sets else {} for sets in (before, after)]
                rows += [
                    [run.name, name, str(k), *(_text(value.get(k), 3) for value in values)]
                    for k in sorted(values[0] | values[1])
                    if (group.label, name, k) not in done
                ]
    named = columns("run", "set", k="pass@k", before="before", after="after")
    caption = "As recorded. Without a second measurement of the same problems there is no test."
    return Table(title="Measured pass@k", caption=caption, columns=named, rows=rows) if rows else None


def _course_table(runs: Sequence[Run]) -> Table:
    """How training went, run by run."""
    rows = [[run.name, *_course(run).values()] for run in runs]
    named = columns("run", **{heading: _COURSE_TERMS.get(heading, heading) for heading in _course(runs[0])})
    caption = (
        "Two numbers: first and last tenth of the steps. For zero-std groups, by outcome alone and with the bonus."
    )
    return Table(title="Course of training", caption=caption, columns=named, rows=rows)


def _course(run: Run) -> dict[str, str]:
    """How training went, by heading."""
    seconds = logged(run.metrics, "time/step_seconds")
    zero_std = [mean_of(logged(run.metrics, f"gar/zero_std_group_fraction_{kind}")) for kind in ("outcome", "shaped")]
    return {
        "steps": f"{run.last_step:,}",
        "rollouts": f"{sum(run.num_rows.values()):,}",
        "right": _arrow(edges(run, "gar/eligible_fraction"), percent=True),
        "alignment": _arrow(edges(run, "gar/alignment_mean")),
        "zero-std groups": _arrow(zero_std, percent=True),
        "seconds per step": _text(statistics.median(seconds) if seconds else None, 2),
        "GAR’s share": percent_text(gar_time_fraction(run.metrics)),
    }


def _status_table(runs: Sequence[Run], counts: Sequence[Counter[str]]) -> Table | None:
    """How the responses ended, over all recorded rollouts."""
    words = sorted({word for count in counts for word in count}, key=lambda word: (word != "right", word))
    if not words:
        return None
    rows = [
        [run.name, *(f"{count[word]:,} ({percent_text(count[word] / max(1, count.total()))})" for word in words)]
        for run, count in zip(runs, counts, strict=True)
        if count
    ]
    named = columns("run", **dict.fromkeys(words, "verdict of a response"))
    return Table(title="How responses ended", caption="All recorded rollouts.", columns=named, rows=rows)


def edges(run: Run, metric: str) -> tuple[float | None, float | None]:
    """Mean over the first and over the last tenth of the steps that have the metric."""
    rows = [row[metric] for row in run.metrics if metric in row]
    size = max(1, round(len(rows) * _EDGE_FRACTION))
    return mean_of(rows[:size]), mean_of(rows[-size:])


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
            signed(contrast.difference),
            NONE if contrast.all_equal else f"{signed(contrast.low)} to {signed(contrast.high)}",
            NONE if math.isnan(contrast.p_corrected) else p_text(contrast.p_corrected),
            "> 1" if contrast.detectable > 1 else _text(contrast.detectable, 2),
            str(contrast.num_seeds),
            str(contrast.num_problems),
            contrast.verdict,
        ]
        for contrast in rows_of(contrasts)
    ]
    if len({*contrasts["label"]}) == 1:  # the title names the group
        named, rows = named[1:], [row[1:] for row in rows]
    return Table(title=title, caption=caption, columns=named, rows=rows)


def _arrow(pair: Sequence[float | None], *, percent: bool = False) -> str:
    return arrow(*(percent_text(value) if percent else _text(value, 2) for value in pair))


def arrow(first: str, last: str) -> str:
    """Two numbers, from the first to the last."""
    return NONE if first == last == NONE else f"{first} → {last}"


def _text(value: float | None, digits: int) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def percent_text(value: float | None) -> str:
    """A share as a whole number of percent."""
    return NONE if value is None else f"{100 * value:.0f}%"
