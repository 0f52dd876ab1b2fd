"""From run folders to one HTML file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gar.errors import ConfigError
from gar.records import write_atomic
from gar.report.definitions import DEFINITIONS
from gar.report.figures import chart_note, charts, pictures
from gar.report.groups import RunGroup, differences_table, group_runs, run_facts
from gar.report.options import ReportOptions
from gar.report.page import MAX_BYTES, Report, ShownRollouts, page
from gar.report.read import ReadRun, read_run
from gar.report.rollouts import browser_rollouts
from gar.report.summary import summary_tables, tiles, verdict_counts
from gar.report.verdicts import changes, contests, headline, sentences

_SPARE_BYTES = 200_000


def write_report(paths: Sequence[str | Path], out: str | Path, options: ReportOptions | None = None) -> Report:
    """Write a report about some runs as one HTML file below 8 MB.

    Args:
        paths: Run folders. Those that differ in their seed alone are shown as one; others are compared with the first.
        out: The file.
        options: Choices; None takes the defaults.

    Returns:
        The content of the page.

    Raises:
        ConfigError: A run is named twice, or there are too many for one page.
        RecordError: A folder is not a run folder, or the file cannot be written.
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
    report = Report(
        title=_title(groups, runs),
        subtitle=_subtitle(groups, runs),
        headline=headline(groups, before_after, against),
        sentences=sentences(groups, before_after, against),
        notes=[*notes, *(f"{note}." for note in comparing)],
        tiles=tiles(runs[0]) if len(runs) == 1 else [],
        tables=summary_tables(groups, counts, before_after, against),
        charts=charts(groups),
        chart_note=chart_note(groups),
        rollouts=ShownRollouts(groups=[], formulas=[], notes=[]),
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
    return replace(report, rollouts=browser_rollouts(runs, options, room))


def _title(groups: Sequence[RunGroup], runs: Sequence[ReadRun]) -> str:
    if len(runs) == 1:
        return runs[0].name
    return groups[0].label if len(groups) == 1 else " · ".join(group.label for group in groups)


def _subtitle(groups: Sequence[RunGroup], runs: Sequence[ReadRun]) -> str:
    run = runs[0]
    sections = (run.settings.get(name) for name in ("model", "data"))
    model, data = (section if isinstance(section, Mapping) else {} for section in sections)
    last = max(run.last_step for run in runs)
    what = [
        f"{len(runs)} runs in {len(groups)} groups" if len(runs) > 1 else str(run.settings.get("method", "")),
        f"model {model['path']}" if "path" in model else "",
        f"problems {data['source']}" if "source" in data else "",
        "1 step" if last == 1 else f"{last:,} steps",
    ]
    return " · ".join(part for part in what if part)
