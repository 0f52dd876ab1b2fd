"""Groups of runs that differ only in their seed, the settings in which groups differ, and the origin of each run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gar.analysis.style import COLORS
from gar.records import Run, canonical_hash
from gar.records.dotted import leaves
from gar.report.page import RunFacts, Table, columns

_NOT_COMPARED = ("seed", "records", "evaluate.eval_steps")
"""Settings that may differ within one experiment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunGroup:
    """Runs of one method under equal settings, one per seed."""

    label: str
    color: str
    runs: Sequence[Run]


def group_runs(runs: Sequence[Run]) -> list[RunGroup]:
    """Group runs, in the given order.

    A run without settings is a group by itself, and so is a run whose seed is already in its group.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = canonical_hash(dict(compared_settings(run))) if run.settings else str(run.path)
        while any(run.seed == other.seed for other in groups.get(key, [])):
            key += " again"
        groups.setdefault(key, []).append(run)
    differing = differing_settings(runs)
    labels = _distinct([_label(members[0], differing) for members in groups.values()])
    return [
        RunGroup(label=label, color=COLORS[number % len(COLORS)], runs=members)
        for number, (label, members) in enumerate(zip(labels, groups.values(), strict=True))
    ]


def differing_settings(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Settings that differ between runs, except seed and names, with the value of each run."""
    tables = [dict(compared_settings(run)) for run in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    values = {name: [table.get(name) for table in tables] for name in names}
    return {name: row for name, row in values.items() if any(value != row[0] for value in row)}


def run_facts(groups: Sequence[RunGroup]) -> list[RunFacts]:
    """Every run with the facts in its run.json and its settings as text."""
    return [
        RunFacts(name=run.name, label=group.label, color=group.color, facts=_facts(run), config=run.config_text)
        for group in groups
        for run in group.runs
    ]


def differences_table(runs: Sequence[Run]) -> Table | None:
    """Settings that differ between runs. None if there are none."""
    differing = differing_settings(runs)
    if len(runs) < 2 or not differing:
        return None
    return Table(
        title="Settings that differ",
        caption="Seeds and names of folders left out.",
        columns=columns("setting", *(run.name for run in runs)),
        rows=[
            [name, *("not set" if value is None else str(value) for value in values)]
            for name, values in differing.items()
        ],
    )


def compared_settings(run: Run) -> Iterator[tuple[str, Any]]:
    """The settings of the experiment by dotted name, without seed and names."""
    for name, value in leaves(run.settings):
        if not any(name == other or name.startswith(f"{other}.") for other in _NOT_COMPARED):
            yield name, value


def error_of(run: Run) -> Mapping[str, Any]:
    """The error that ended a run. Empty if there was none, or it was not recorded."""
    error = run.record.get("error")
    return error if isinstance(error, Mapping) else {}


def _label(run: Run, differing: Mapping[str, Any]) -> str:
    if not run.settings:
        return run.name
    values = dict(compared_settings(run))
    rest = [f"{name} {values[name]}" for name in differing if name != "method" and name in values]
    return ", ".join([str(values.get("method", run.name)), *rest[:3]])


def _distinct(labels: Sequence[str]) -> list[str]:
    """The labels, numbered if a label appears twice."""
    return [
        label if labels.count(label) == 1 else f"{label} ({labels[: number + 1].count(label)})"
        for number, label in enumerate(labels)
    ]


def _facts(run: Run) -> list[tuple[str, str, str | None]]:
    """Label, value, and key of the definition."""
    record = run.record
    cores = f"{record.get('cpu_count') or 'unknown number of'} cores"
    entries = {
        "status": record.get("status", "unknown"),
        "error": error_of(run).get("text"),
        "place of the error": error_of(run).get("place"),
        "start time": record.get("start_time"),
        "end time": record.get("end_time"),
        "resumed": ", ".join(map(str, record.get("resume_times") or ())),
        "changed when resumed": record.get("overrides"),
        "seed": run.seed,
        "command": record.get("command"),
        "machine": f"{record['platform']}, {cores}" if record.get("platform") else None,
        "config hash": record.get("config_hash"),
        "data hash": record.get("data_hash"),
    }
    terms = {"config hash": "config_hash", "data hash": "data_hash"}
    facts = [(label, str(value), terms.get(label)) for label, value in entries.items() if value or value == 0]
    versions = record.get("versions")
    if isinstance(versions, dict):
        facts += [(package, str(version or "not installed"), None) for package, version in versions.items()]
    return facts
