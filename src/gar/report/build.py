"""From run folders to one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gar.errors import ConfigError
from gar.records import write_atomic
from gar.report.browser import add_shares, show_groups
from gar.report.content import Report, Rollouts, Table
from gar.report.curves import chart_note, charts
from gar.report.definitions import DEFINITIONS
from gar.report.experts import expert_problems
from gar.report.groups import RunGroup, group_runs
from gar.report.page import MAX_BYTES, page
from gar.report.pictures import pictures
from gar.report.provenance import differences_table, run_facts
from gar.report.read import ReadRun, read_run
from gar.report.sample import draw_groups, drawing_words
from gar.report.shares import Shares, Weights, token_shares
from gar.report.summary import (
    change_table,
    contest_table,
    course_table,
    recorded_table,
    status_table,
    tiles,
    verdict_counts,
)
from gar.report.texts import Formulas
from gar.report.verdicts import changes, contests, headline, sentences

_SPARE_BYTES = 200_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    """What a reader may choose.

    Attributes:
        max_rollouts: Rollouts to show, over all runs.
        problems: A file with the problems, where the runs' own source is not at hand.
        token_shares: Compute token shares under these weights; None leaves the models alone.
    """

    max_rollouts: int = 2000
    problems: str | None = None
    token_shares: Weights | None = None


def write_report(paths: Sequence[str | Path], out: str | Path, options: ReportOptions | None = None) -> Report:
    """Write a report about some runs as one HTML file below 8 MB.

    Args:
        paths: Run folders. Those that differ in their seed alone are shown as one; others are held against the first.
        out: The file.
        options: Choices; None for the usual ones.

    Returns:
        What the page shows.

    Raises:
        ConfigError: A run is named twice, or there are too many for one page.
        RecordError: A folder is none of a run, or the file cannot be written.
    """
    resolved = [Path(path).resolve() for path in paths]
    if len(set(resolved)) < len(resolved):
        raise ConfigError(f"every run once, got {', '.join(str(path) for path in paths)}")
    report = make_report([read_run(path) for path in paths], options or ReportOptions())
    write_atomic(out, page(report))
    return report


def make_report(read: Sequence[ReadRun], options: ReportOptions) -> Report:
    """The content of the page, from runs that are read."""
    groups = group_runs(read)
    runs = [run for group in groups for run in group.runs]
    notes = [f"{run.name}: {note}." for run in runs for note in run.missing]
    counts = [verdict_counts(run) for run in runs]
    notes += [
        f"{run.name}: none of its {count.total():,} responses was right. No bonus was possible, so there is no "
        "alignment to show."
        for run, count in zip(runs, counts, strict=True)
        if count and not count["right"]
    ]
    comparing: list[str] = []
    before_after, against = changes(groups, comparing), contests(groups, comparing)
    drawn_pictures = pictures(groups, notes)
    tables: list[Table | None] = [
        contest_table(against, groups[0].label) if against else None,
        change_table(before_after) if before_after else None,
        recorded_table(groups, before_after),
        course_table(groups) if len(runs) > 1 else None,
        status_table(runs, counts),
    ]
    report = Report(
        title=_title(groups, runs),
        subtitle=_subtitle(groups, runs),
        headline=headline(groups, before_after, against),
        sentences=sentences(groups, before_after, against),
        notes=[*notes, *(f"{note}." for note in comparing)],
        tiles=tiles(runs[0]) if len(runs) == 1 else [],
        tables=[table for table in tables if table],
        charts=charts(groups),
        chart_note=chart_note(groups),
        rollouts=Rollouts(groups=[], formulas=[], notes=[]),
        pictures=drawn_pictures,
        runs=run_facts(groups),
        settings=differences_table(runs),
        definitions=DEFINITIONS,
    )
    room = MAX_BYTES - _SPARE_BYTES - len(page(report))
    if room < 0:
        raise ConfigError(
            f"{len(runs)} runs make a page of more than {MAX_BYTES:,} bytes without a single rollout. Report on fewer "
            "at a time."
        )
    return replace(report, rollouts=_rollouts(runs, options, room))


def _rollouts(runs: Sequence[ReadRun], options: ReportOptions, room: int) -> Rollouts:
    """Draw, keep what fits, and add what must be looked up or computed."""
    with_rollouts = [run for run in runs if run.num_rows]
    drawn = [
        group
        for number, run in enumerate(runs)
        if run.num_rows
        for group in draw_groups(run, number, options.max_rollouts // len(with_rollouts))
    ]
    notes: list[str] = []
    formulas = Formulas()
    experts = expert_problems(runs, drawn, options.problems, notes)
    shown = show_groups(drawn, experts, formulas, room, with_shares=options.token_shares is not None)
    counts = (sum(len(group.rows) for group in part) for part in ([each.drawn for each in shown], drawn))
    notes.insert(0, drawing_words(runs, *counts))
    shares: Shares = {}
    if options.token_shares is not None:
        shares = token_shares(runs, [each.drawn for each in shown], experts, options.token_shares, notes)
    elif shown:
        notes.append("Token shares were not asked for: --token-shares computes them from a model.")
    return Rollouts(groups=[add_shares(each, shares) for each in shown], formulas=formulas.rows, notes=notes)


def _title(groups: Sequence[RunGroup], runs: Sequence[ReadRun]) -> str:
    if len(runs) == 1:
        return runs[0].name
    return groups[0].label if len(groups) == 1 else " · ".join(group.label for group in groups)


def _subtitle(groups: Sequence[RunGroup], runs: Sequence[ReadRun]) -> str:
    run = runs[0]
    sections = (run.settings.get(name) for name in ("model", "data"))
    model, data = (section if isinstance(section, Mapping) else {} for section in sections)
    last = max(each.last_step for each in runs)
    what = [
        f"{len(runs)} runs in {len(groups)} groups" if len(runs) > 1 else str(run.settings.get("method", "")),
        f"model {model['path']}" if "path" in model else "",
        f"problems {data['source']}" if "source" in data else "",
        "1 step" if last == 1 else f"{last:,} steps",
    ]
    return " · ".join(part for part in what if part)
