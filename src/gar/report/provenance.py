"""Where the numbers come from: versions, machine, command, settings; and what differs between runs."""

from collections.abc import Sequence

from gar.report.content import Column, RunFacts, Table
from gar.report.groups import RunGroup, differing_settings
from gar.report.read import ReadRun


def run_facts(groups: Sequence[RunGroup]) -> list[RunFacts]:
    """Every run with what its run.json says and its settings as text."""
    return [
        RunFacts(name=run.name, label=group.label, colour=group.colour, facts=_facts(run), config=run.config_text)
        for group in groups
        for run in group.runs
    ]


def differences_table(runs: Sequence[ReadRun]) -> Table | None:
    """Settings that are not the same in all runs; None where there are none."""
    differing = differing_settings(runs)
    if len(runs) < 2 or not differing:
        return None
    return Table(
        title="Settings that differ",
        caption="Seeds and names of folders left out.",
        columns=[Column(heading=heading, kind="text") for heading in ("setting", *(run.name for run in runs))],
        rows=[
            [name, *("not set" if value is None else str(value) for value in found)]
            for name, found in differing.items()
        ],
    )


def _facts(run: ReadRun) -> list[tuple[str, str, str | None]]:
    """Label, value, and the term that explains it."""
    record = run.record
    facts: list[tuple[str, str, str | None]] = [("status", str(record.get("status", "unknown")), None)]
    for name in ("start_time", "end_time"):
        if record.get(name):
            facts.append((name.replace("_", " "), str(record[name]), None))
    if record.get("resume_times"):
        facts.append(("resumed", ", ".join(map(str, record["resume_times"])), None))
    if record.get("overrides"):
        facts.append(("changed when resumed", str(record["overrides"]), None))
    if run.seed is not None:
        facts.append(("seed", str(run.seed), None))
    if record.get("command"):
        facts.append(("command", str(record["command"]), None))
    if record.get("platform"):
        facts.append(("machine", f"{record['platform']}, {record.get('cpu_count') or 'unknown number of'} cores", None))
    for name in ("config_hash", "data_hash"):
        if record.get(name):
            facts.append((name.replace("_", " "), str(record[name]), name))
    versions = record.get("versions")
    if isinstance(versions, dict):
        facts += [(package, str(version or "not installed"), None) for package, version in versions.items()]
    return facts
