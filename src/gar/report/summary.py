"""The numbers of the summary: tiles for one run, tables for all."""

import statistics
from collections import Counter
from collections.abc import Sequence

from gar.report.content import Column, Table, Tile
from gar.report.groups import RunGroup
from gar.report.read import ReadRun
from gar.report.sample import verdict_word
from gar.report.verdicts import Contrast, p_text, signed

_NONE = "–"
_EDGE_FRACTION = 0.1


def tiles(run: ReadRun) -> list[Tile]:
    """One run at a glance."""
    right, alignment = (edges(run, f"gar/{name}") for name in ("eligible_fraction", "alignment_mean"))
    tenths = "first and last tenth"
    return [
        Tile(term="steps", label="Steps", value=f"{run.last_step:,}", detail=f"{run.num_rollouts:,} rollouts"),
        Tile(term="right", label="Right and in format", value=_arrow(right, percent=True), detail=tenths),
        Tile(term="alignment", label="Alignment when right", value=_arrow(alignment), detail=tenths),
        Tile(term="silent", label="Silent groups", value=_arrow(_silent(run), percent=True),
             detail="by outcome alone, with the bonus"),
        Tile(term="step time", label="Seconds per step", value=_text(step_seconds(run), 2),
             detail=f"of which GAR {_percent(gar_share(run))}"),
    ]  # fmt: skip


def change_table(contrasts: Sequence[Contrast]) -> Table:
    """Before against after, as tested."""
    return _contrast_table(
        contrasts,
        title="Before and after training",
        caption="The same runs before the first step and after the last.",
        headings=(Column(heading="before", term="before"), Column(heading="after", term="after")),
    )


def contest_table(contrasts: Sequence[Contrast], reference: str) -> Table:
    """Every group against the first, as tested."""
    labels = {contrast.label for contrast in contrasts}
    return _contrast_table(
        contrasts,
        title=f"{contrasts[0].label} against {reference}" if len(labels) == 1 else f"Against {reference}",
        caption="After training, paired by seed.",
        headings=(Column(heading=reference, term="pass@k"), Column(heading="these runs", term="pass@k")),
    )


def recorded_table(groups: Sequence[RunGroup], tested: Sequence[Contrast]) -> Table | None:
    """pass@k as recorded, where there was nothing to test it against."""
    done = {(contrast.label, contrast.set_name, contrast.k) for contrast in tested}
    rows = []
    for group in groups:
        for run in group.runs:
            before, after = (dict(run.evaluations[moment]) for moment in ("before", "after"))
            for name in before | after:
                values = [dict(sets[name].pass_at) if name in sets else {} for sets in (before, after)]
                rows += [
                    [run.name, name, str(k), *(_text(value.get(k), 3) for value in values)]
                    for k in sorted(values[0] | values[1])
                    if (group.label, name, k) not in done
                ]
    columns = [
        Column(heading="run", kind="text"),
        Column(heading="set", kind="text"),
        Column(heading="k", term="pass@k"),
        Column(heading="before", term="before"),
        Column(heading="after", term="after"),
    ]
    caption = "As recorded. Without a second measurement of the same problems there is no test."
    return Table(title="Measured pass@k", caption=caption, columns=columns, rows=rows) if rows else None


def course_table(groups: Sequence[RunGroup]) -> Table:
    """How training went, run by run."""
    columns = [
        Column(heading="run", kind="text"),
        Column(heading="steps", term="steps"),
        Column(heading="rollouts", term="rollouts"),
        Column(heading="right", term="right"),
        Column(heading="alignment", term="alignment"),
        Column(heading="silent groups", term="silent"),
        Column(heading="seconds per step", term="step time"),
        Column(heading="GAR’s share", term="gar share"),
    ]
    rows = [
        [
            run.name,
            f"{run.last_step:,}",
            f"{run.num_rollouts:,}",
            _arrow(edges(run, "gar/eligible_fraction"), percent=True),
            _arrow(edges(run, "gar/alignment_mean")),
            _arrow(_silent(run), percent=True),
            _text(step_seconds(run), 2),
            _percent(gar_share(run)),
        ]
        for group in groups
        for run in group.runs
    ]
    caption = (
        "Two numbers: the first and the last tenth of the steps; of silent groups, by outcome alone and with the bonus."
    )
    return Table(title="Course of training", caption=caption, columns=columns, rows=rows)


def status_table(runs: Sequence[ReadRun], counts: Sequence[Counter[str]]) -> Table | None:
    """How the responses ended, over all recorded rollouts."""
    words = sorted({word for count in counts for word in count}, key=lambda word: (word != "right", word))
    if not words:
        return None
    rows = [
        [run.name, *(f"{count[word]:,} ({_percent(count[word] / max(1, count.total()))})" for word in words)]
        for run, count in zip(runs, counts, strict=True)
        if count
    ]
    columns = [Column(heading="run", kind="text"), *(Column(heading=w, term="verdict of a response") for w in words)]
    return Table(title="How responses ended", caption="All recorded rollouts.", columns=columns, rows=rows)


def verdict_counts(run: ReadRun) -> Counter[str]:
    """Responses of all rollouts by how they ended."""
    return Counter(verdict_word(row) for row in run.every_rollout(["eligible", "verified", "status"]))


def edges(run: ReadRun, metric: str) -> tuple[float | None, float | None]:
    """Mean over the first and over the last tenth of the steps that have the metric."""
    rows = [row[metric] for row in run.metrics if metric in row]
    size = max(1, round(len(rows) * _EDGE_FRACTION))
    return _mean_of(rows[:size]), _mean_of(rows[-size:])


def step_seconds(run: ReadRun) -> float | None:
    """Median."""
    seconds = [value for row in run.metrics if (value := row.get("time/step_seconds")) is not None]
    return statistics.median(seconds) if seconds else None


def gar_share(run: ReadRun) -> float | None:
    """Of the seconds of all steps."""
    seconds, own = (
        [row[name] for row in run.metrics if row.get(name) is not None]
        for name in ("time/step_seconds", "time/gar_seconds")
    )
    return sum(own) / sum(seconds) if own and sum(seconds) else None


def _contrast_table(contrasts: Sequence[Contrast], *, title: str, caption: str, headings: Sequence[Column]) -> Table:
    columns = [
        Column(heading="runs", kind="text"),
        Column(heading="set", kind="text"),
        Column(heading="k", term="pass@k"),
        *headings,
        Column(heading="difference", term="difference"),
        Column(heading="95 % interval", term="interval"),
        Column(heading="p", term="p-value"),
        Column(heading="detectable", term="detectable"),
        Column(heading="seeds", term="seeds"),
        Column(heading="problems", term="problems"),
        Column(heading="verdict", term="verdict", kind="verdict"),
    ]
    rows = [[contrast.label, *_contrast_cells(contrast)] for contrast in contrasts]
    if len({contrast.label for contrast in contrasts}) == 1:  # the title of the page or of the table says which
        columns, rows = columns[1:], [row[1:] for row in rows]
    return Table(title=title, caption=caption, columns=columns, rows=rows)


def _contrast_cells(contrast: Contrast) -> list[str]:
    result = contrast.result
    return [
        contrast.set_name,
        str(contrast.k),
        f"{result.reference:.3f}",
        f"{result.score:.3f}",
        signed(result.difference),
        _NONE if result.all_equal else f"{signed(result.low)} to {signed(result.high)}",
        _NONE if result.holm_p_value is None else p_text(result.holm_p_value).removeprefix("=\u00a0"),
        _text(result.minimum_detectable_effect, 2),
        str(result.num_seeds),
        str(result.num_problems),
        result.verdict,
    ]


def _silent(run: ReadRun) -> tuple[float | None, float | None]:
    """Share of silent groups by the outcome alone, and with the bonus; means over the steps."""
    return _mean(run, "gar/silent_group_fraction_outcome"), _mean(run, "gar/silent_group_fraction_shaped")


def _mean(run: ReadRun, metric: str) -> float | None:
    return _mean_of([row[metric] for row in run.metrics if metric in row])


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _arrow(pair: Sequence[float | None], *, percent: bool = False) -> str:
    first, last = (_percent(value) if percent else _text(value, 2) for value in pair)
    return f"{first} → {last}" if first != _NONE or last != _NONE else _NONE


def _text(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:.{digits}f}".replace("-", "−")


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.0f} %"
