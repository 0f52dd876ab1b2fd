"""Runs that differ in their seed alone belong together; what else differs makes the label."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gar.analysis.style import COLOURS, MUTED, method_colour
from gar.records import canonical_hash
from gar.records.dotted import leaves
from gar.report.read import ReadRun

_NOT_TERMS = ("seed", "records", "evaluate.every_steps")
"""Settings under which two runs are still the same experiment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunGroup:
    """Runs of one method under equal settings, by seed."""

    label: str
    colour: str
    runs: Sequence[ReadRun]


def group_runs(runs: Sequence[ReadRun]) -> list[RunGroup]:
    """Groups in the order in which they were named.

    A run without settings is a group of its own under its name, and so is one whose seed is there already.
    """
    groups: dict[str, list[ReadRun]] = {}
    for run in runs:
        key = canonical_hash(dict(terms(run))) if run.settings else str(run.folder.path)
        while any(run.seed == other.seed for other in groups.get(key, [])):
            key += " again"
        groups.setdefault(key, []).append(run)
    differing = differing_settings(runs)
    labels = _distinct([_label(members[0], differing) for members in groups.values()])
    colours = _colours([str(members[0].settings.get("method", "")) for members in groups.values()])
    return [
        RunGroup(label=label, colour=colour, runs=members)
        for label, colour, members in zip(labels, colours, groups.values(), strict=True)
    ]


def differing_settings(runs: Sequence[ReadRun]) -> dict[str, list[Any]]:
    """Settings that are not the same in all runs, seed and names aside, with the value of each run."""
    tables = [dict(terms(run)) for run in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    values = {name: [table.get(name) for table in tables] for name in names}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def terms(run: ReadRun) -> Iterator[tuple[str, Any]]:
    """The settings by their dotted names, without those that do not make another experiment."""
    for name, value in leaves(run.settings):
        if not any(name == other or name.startswith(f"{other}.") for other in _NOT_TERMS):
            yield name, value


def _label(run: ReadRun, differing: Mapping[str, Any]) -> str:
    if not run.settings:
        return run.name
    own = dict(terms(run))
    rest = [f"{name} {own[name]}" for name in differing if name != "method" and name in own]
    return ", ".join([str(own.get("method", run.name)), *rest[:3]])


def _colours(methods: Sequence[str]) -> list[str]:
    """Each method's own colour; where it is taken already, or nobody's, the next of the palette that is free."""
    taken: list[str] = []
    for method in methods:
        own = method_colour(method)
        free = [colour for colour in COLOURS if colour not in taken] or list(COLOURS)
        taken.append(free[0] if own in (*taken, MUTED) else own)
    return taken


def _distinct(labels: Sequence[str]) -> list[str]:
    """The labels, numbered where one stands twice."""
    return [
        label if labels.count(label) == 1 else f"{label} ({labels[: number + 1].count(label)})"
        for number, label in enumerate(labels)
    ]
