"""From run folders to one HTML file."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gar.analysis.summary import NONE
from gar.errors import ConfigError
from gar.evaluation.text_tables import ungraded_notes
from gar.records import Run, write_atomic
from gar.records.files import read_bytes
from gar.report import ReportOptions
from gar.report.charts import charts
from gar.report.definitions import DEFINITIONS
from gar.report.page import GENERATOR, MAX_BYTES, Report, ShownGroup, page
from gar.report.reasons import bonus_sentences
from gar.report.rollouts import browser_rollouts
from gar.report.runs import Groups, differing_settings, group_runs, missing, open_runs, run_origin
from gar.report.tables import measured_tables, problem_table, runs_table, setting, status_table, verdict_counts
from gar.report.verdicts import changes, contests, contrast_table, headline, scope

_SPARE_BYTES = 200_000
_HEAD_BYTES = 10_000


def write_report(paths: Sequence[str | Path], out: str | Path, options: ReportOptions | None = None) -> Report:
    """Write a report about some runs as one HTML file below 8 MB, and return the content of the page.

    `paths` are run folders, or folders of them. An earlier report of this name is replaced, any other file is an error.
    """
    if Path(out).suffix != ".html":
        raise ConfigError(f"{out}: a report is an HTML file. Expected a name that ends in .html.")
    if os.path.lexists(out) and GENERATOR not in read_bytes(out)[:_HEAD_BYTES].decode(errors="replace"):
        raise ConfigError(f"{out} is not a report of gar, so it is not replaced. Choose another --out, or move it.")
    runs, faults = open_runs(paths)
    report = make_report(runs, options or ReportOptions(), faults)
    write_atomic(out, page(report))
    return report


def make_report(runs: Sequence[Run], options: ReportOptions, faults: Sequence[str] = ()) -> Report:
    """The content of the page. `faults` are of runs that could not be read."""
    # 1. The verdict: groups against the first, or one group before and after.
    groups = group_runs(runs)
    runs = [run for members in groups.values() for run in members]
    ends = [f"{run.name}: {clause}" for run in runs for clause in missing(run)]
    counts, reasons = [verdict_counts(run) for run in runs], list[str]()
    before_after, against = changes(groups), contests(groups, reasons)
    tested = against if len(groups) > 1 else before_after
    notes = ends + [
        f"{run.name}: none of its {count.total():,} responses was right. No bonus was possible, so there is no "
        "alignment to show"
        for run, count in zip(runs, counts, strict=True)
        if count and not count["right"]
    ]
    notes += ungraded_notes(
        (f"{run.name}, {moment}" if run.trained else run.name, name, part)
        for run in runs
        for moment, sets in run.evaluations.items()
        for name, part in sets.items()
    )
    # 2. Tables and charts, which use all rollouts.
    problems, problem_notes = problem_table(groups)
    tables = measured_tables(runs) | {
        f"Against {next(iter(groups))}": contrast_table(against, ("reference", "these runs")),
        "Before and after training": contrast_table(before_after, ("before", "after")),
        "How all recorded responses ended": status_table(runs, counts),
    }
    report = Report(
        title=runs[0].name if len(runs) == 1 else " · ".join(groups),
        subtitle=_subtitle(runs, len(groups)),
        headline=_measured(runs) or headline(tested, [*reasons, *ends]),
        scope=scope(tested, len(groups)),
        notes=[*(f"Left out: {fault}" for fault in faults), *(f"{note}." for note in (*notes, *reasons))],
        faults=faults,
        tables={title: table.replace("-", NONE) for title, table in tables.items() if len(table)},
        all_runs=runs_table(runs),
        problems=problems,
        problem_notes=problem_notes,
        charts=charts(groups),
        runs=[run_origin(label, run) for label, members in groups.items() for run in members],
        differing=differing_settings(runs),
        definitions=DEFINITIONS,
    )
    # 3. Rollouts fill the room that is left.
    room = MAX_BYTES - _SPARE_BYTES - len(page(report))
    if room < 0:
        raise ConfigError(
            f"{len(runs)} runs make a page of more than {MAX_BYTES:,} bytes without a single rollout. Report on fewer "
            "at a time."
        )
    shown, rollout_notes = browser_rollouts(runs, options, room)
    if shown and not options.token_shares:
        rollout_notes.append("Token shares were not asked for: --token-shares computes them from the final model.")
    return replace(report, groups=shown, rollout_notes=rollout_notes, bonus=_bonus_texts(groups, shown))


def _bonus_texts(groups: Groups, shown: Sequence[ShownGroup]) -> list[str]:
    """What the bonus paid for in each group of runs, with its label if there are several."""
    numbers, texts = itertools.count(), list[str]()
    for label, runs in groups.items():
        members = {next(numbers) for _ in runs}
        if text := bonus_sentences([group for group in shown if group.run in members]):
            texts.append(f"{label}: {text}" if len(groups) > 1 else text)
    return texts


def _measured(runs: Sequence[Run]) -> str:
    """The numbers of a single evaluation by `gar eval`. Empty for anything else."""
    if len(runs) > 1 or runs[0].trained:
        return ""
    measured = {name: part.known_rates.items() for name, part in runs[0].evaluations["after"].items()}
    return "; ".join(f"{name}: " + ", ".join(f"pass@{k} {rate:.3f}" for k, rate in of) for name, of in measured.items())


def _subtitle(runs: Sequence[Run], num_groups: int) -> str:
    what = {
        "": f"{len(runs)} runs in {num_groups} groups" if len(runs) > 1 else setting(runs[0], "method"),
        "model ": setting(runs[0], "model.path"),
        "problems ": setting(runs[0], "data.source"),
        "steps to ": f"{max(run.last_step for run in runs):,}" if any(run.trained for run in runs) else "",
    }
    return " · ".join(f"{name}{value}" for name, value in what.items() if value)
