"""From run folders to one HTML file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gar.errors import ConfigError
from gar.records import ROLLOUT_SCHEMA, Fault, Run, open_run, write_atomic
from gar.report.definitions import DEFINITIONS
from gar.report.figures import charts, pictures
from gar.report.groups import RunGroup, differences_table, error_of, group_runs, run_facts
from gar.report.options import ReportOptions
from gar.report.page import MARK, MAX_BYTES, Report, ShownRollouts, page
from gar.report.rollouts import browser_rollouts
from gar.report.runs import find_runs
from gar.report.summary import runs_table, section_of, summary_tables, tags, tiles, verdict_counts
from gar.report.verdicts import changes, contests, headline, scope

_SPARE_BYTES = 200_000


def write_report(
    paths: Sequence[str | Path], out: str | Path, options: ReportOptions | None = None, *, overwrite: bool = False
) -> Report:
    """Write a report about some runs as one HTML file below 8 MB, and return the content of the page.

    `paths` are run folders, or folders of them. An earlier report is replaced, and whatever is there with `overwrite`.
    """
    runs = [read_run(path) for path in find_runs(paths)]
    if not overwrite and Path(out).exists() and not _is_report(Path(out)):
        raise ConfigError(f"{out} exists, and is not a report. Add --overwrite to replace it.")
    report = make_report(runs, options or ReportOptions())
    write_atomic(out, page(report))
    return report


def read_run(path: str | Path) -> Run:
    """Read a run as far as possible. Each column is read once. Texts are read only for the steps shown.

    Raises:
        RecordError: The folder does not exist, or holds nothing of a run.
    """
    run = open_run(path, strict=False)
    run.rollouts([name for name in ROLLOUT_SCHEMA.names if name not in ("prompt", "response")])
    return run


def missing(run: Run) -> list[str]:
    """What cannot be shown of a run, as clauses."""
    if not run.trained:
        return [*_by_kind(run.faults), "this is an evaluation by gar eval: the model that was measured stands as after"]
    clauses = [*run.unfinished, *_by_kind(run.faults)]
    if not run.metrics and not any(fault.file == "metrics.jsonl" for fault in run.faults):
        clauses.append("no step was logged yet, so there are no curves")
    for moment, sets in run.evaluations.items():
        if not sets and not any(fault.file == f"evaluation/{moment}.json" for fault in run.faults):
            clauses.append(f"there is no evaluation/{moment}.json, so nothing is known of the model {moment} training")
    if not run.steps and not any(fault.file.startswith("rollouts/") for fault in run.faults):
        clauses.append("no rollouts were recorded: no step was finished")
    return clauses


def _by_kind(faults: Sequence[Fault]) -> list[str]:
    """Every fault. Those of single steps' rollouts are joined into one clause."""
    lost = [fault for fault in faults if fault.file.startswith("rollouts/")]
    clauses = [f"{fault}: it is left out" for fault in faults if fault not in lost]
    return clauses + ([f"the rollouts of {len(lost)} steps are left out, the first of them: {lost[0]}"] if lost else [])


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(2**16)
    except OSError:
        return False


def make_report(runs: Sequence[Run], options: ReportOptions) -> Report:
    """The content of the page."""
    groups = group_runs(runs)
    runs = [run for group in groups for run in group.runs]
    report = replace(_summary_report(groups), pictures=pictures(groups, options.histogram_steps))
    room = MAX_BYTES - _SPARE_BYTES - len(page(report))
    if room < 0:
        raise ConfigError(
            f"{len(runs)} runs make a page of more than {MAX_BYTES:,} bytes without a single rollout. Report on fewer "
            "at a time."
        )
    return replace(report, rollouts=browser_rollouts(runs, options, room))


def _summary_report(groups: Sequence[RunGroup]) -> Report:
    """The content of the page without rollouts and figures."""
    runs = [run for group in groups for run in group.runs]
    notes = [f"{run.name}: {note}." for run in runs for note in missing(run)]
    counts = [verdict_counts(run) for run in runs]
    notes += [
        f"{run.name}: none of its {count.total():,} responses was right. No bonus was possible, so there is no "
        "alignment to show."
        for run, count in zip(runs, counts, strict=True)
        if count and not count["right"]
    ]
    reasons: list[str] = []
    before_after, against = changes(groups, reasons), contests(groups, reasons)
    return Report(
        title=_title(groups, runs),
        subtitle=_subtitle(groups, runs),
        tags=list(dict.fromkeys(tag for run in runs for tag in tags(run))),
        headline=_state(runs) or headline(groups, before_after, against, reasons),
        sentences=[*_errors(runs), *filter(None, [scope(groups, before_after, against)])],
        notes=[*notes, *(f"{reason}." for reason in reasons)],
        tiles=tiles(runs[0]) if len(runs) == 1 and runs[0].trained else [],
        tables=summary_tables(groups, counts, before_after, against),
        all_runs=runs_table(runs),
        charts=charts(groups),
        rollouts=ShownRollouts(groups=[], notes=[]),
        pictures=[],
        runs=run_facts(groups),
        settings=differences_table(runs),
        definitions=DEFINITIONS,
    )


def _state(runs: Sequence[Run]) -> str:
    """The progress of a single run without a final evaluation, or the numbers of a single evaluation. Else empty."""
    run, status = runs[0], runs[0].record.get("status")
    if len(runs) == 1 and not run.trained:
        rates = [
            f"{name}, pass@{k}: {rate:.3f}"
            for name, part in run.evaluations["after"].items()
            for k, rate in part.known_rates.items()
        ]
        return "; ".join(rates) or "No numbers."
    if len(runs) > 1 or run.evaluations["after"] or status in (None, "finished"):
        return ""
    steps = section_of(run, "trl").get("max_steps")
    reached = f"step {run.last_step:,}" + (f" of {steps:,}" if isinstance(steps, int) and steps > 0 else "")
    return f"Training: {reached}." if status == "running" else f"The run {_ENDS[status]} after {reached}."


def _errors(runs: Sequence[Run]) -> list[str]:
    """The errors that ended runs early."""
    named = [f"{run.name}: " if len(runs) > 1 else "" for run in runs]
    errors = [error_of(run) for run in runs]
    return [f"{name}{e['text']} (at {e.get('place')})" for name, e in zip(named, errors, strict=True) if e.get("text")]


_ENDS = {"failed": "failed", "interrupted": "was interrupted"}


def _title(groups: Sequence[RunGroup], runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return runs[0].name
    return groups[0].label if len(groups) == 1 else " · ".join(group.label for group in groups)


def _subtitle(groups: Sequence[RunGroup], runs: Sequence[Run]) -> str:
    run = runs[0]
    model, data = section_of(run, "model"), section_of(run, "data")
    last = max(run.last_step for run in runs)
    what = [
        f"{len(runs)} runs in {len(groups)} groups" if len(runs) > 1 else str(run.settings.get("method", "")),
        f"model {model['path']}" if "path" in model else "",
        f"problems {data['source']}" if "source" in data else "",
        "1 step" if last == 1 else f"{last:,} steps",
    ]
    return " · ".join(part for part in what if part)
