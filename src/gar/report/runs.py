"""What a report is about: the runs below a folder, their groups, the settings in which they differ, what they lack."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from gar.config import dump_yaml
from gar.errors import ConfigError, RecordError
from gar.records import Run, canonical_hash, is_run_folder, leaves, open_run
from gar.report.page import RunOrigin

_NOT_COMPARED = ("seed", "records", "evaluate.eval_steps", "evaluate.eval_on_start")
"""Settings that may differ within one experiment."""
_NOT_TRAINING = ("plugins", "evaluate.", "preflight.", "watchdog.")
"""Settings that do not change what is learned. A label has them only if groups differ in nothing else."""

Groups = Mapping[str, Sequence[Run]]
"""Runs that differ only in their seed, one per seed, by the label of their group."""


def find_runs(paths: Sequence[str | Path]) -> list[Path]:
    """Run folders: the given ones, and those below a given folder that is not a run folder.

    Raises:
        ConfigError: A run is named twice.
        RecordError: A path does not exist, or there is no run in it.
    """
    runs = list[Path]()
    for path in map(Path, paths):
        if not path.is_dir():
            raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
        inside = [*_below(path)]
        if not inside:
            raise RecordError(f"{path}: no run in this folder: there is no run.json.")
        runs += inside
    if len({run.resolve() for run in runs}) < len(runs):
        raise ConfigError(f"a run is named twice, got {', '.join(map(str, paths))}")
    return runs


def open_runs(paths: Sequence[str | Path]) -> tuple[list[Run], list[str]]:
    """The runs of `find_runs` that can be read, and the fault of each other one, which names its file.

    Raises:
        RecordError: None can be read. Lists every fault.
    """
    runs, faults = list[Run](), list[str]()
    for path in find_runs(paths):
        try:
            run = open_run(path)
            _ = run.metrics, run.num_rows  # read when first used: damage shows here, not in the middle of the page
            runs.append(run)
        except RecordError as error:
            faults.append(str(error))
    if not runs:
        text = faults[0] if len(faults) == 1 else "\n- ".join(["no run can be read:", *faults])
        raise RecordError(text, code="damage")
    return runs, faults


def _below(folder: Path) -> Iterator[Path]:
    """Run folders in a folder, itself included. What lies inside a run folder is not searched."""
    for place, names, _ in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if is_run_folder(Path(place)):
            names.clear()
            yield Path(place)


def missing(run: Run) -> list[str]:
    """What cannot be shown of a run, as clauses."""
    if not run.trained:
        return ["this is an evaluation by gar eval: the measured model is shown as after"]
    clauses = [*run.unfinished]
    if not run.metrics:
        clauses.append("no step was logged yet, so there are no curves")
    if not any(run.evaluations.values()):
        clauses.append("the model was measured neither before nor after training: --evaluate.sources does that")
    else:
        clauses += [
            f"there is no evaluation/{moment}, so nothing is known of the model {moment} training"
            for moment, sets in run.evaluations.items()
            if not sets
        ]
    if not run.steps:
        clauses.append("no rollouts were recorded: no step was finished")
    return clauses


def group_runs(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs, in the given order, by all their settings but the seed.

    A run without settings forms a separate group. So does a run with a seed that its group already has.
    """
    # Equal settings make a group. A second run of one seed is no further seed, so it starts a group of its own.
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = canonical_hash(_compared(run)) if run.settings else str(run.path)
        while any(run.seed == other.seed for other in groups.get(key, [])):
            key += " again"
        groups.setdefault(key, []).append(run)
    # A label names only what differs between the groups, what is learned from first.
    differing = differing_settings(runs)["setting"].tolist()
    training = [name for name in differing if not name.startswith(_NOT_TRAINING)]
    others = [name for name in differing if name not in training]
    labels = list[str]()
    for names in (training, training + others):
        labels = [_label(members[0], names) for members in groups.values()]
        if len({*labels}) == len(labels):
            break
    named: dict[str, list[Run]] = {}
    for label, members in zip(labels, groups.values(), strict=True):
        while label in named:
            label += " again"
        named[label] = members
    return named


def differing_settings(runs: Sequence[Run]) -> pd.DataFrame:
    """Settings that differ between runs, except seed and names of folders: a row for each, a column for each run."""
    tables = [_compared(run) for run in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [[name, *(table.get(name) for table in tables)] for name in names]
    rows = [
        [name, *("not set" if value is None else str(value) for value in values)]
        for name, *values in rows
        if any(value != values[0] for value in values)
    ]
    return pd.DataFrame(rows, columns=["setting", *(run.name for run in runs)])


def _compared(run: Run) -> dict[str, Any]:
    """The settings of the experiment by dotted name, without seed and names."""
    return {
        name: value
        for name, value in leaves(run.settings)
        if not any(name == other or name.startswith(f"{other}.") for other in _NOT_COMPARED)
    }


def _label(run: Run, differing: Sequence[str]) -> str:
    if not run.settings:
        return run.name
    values = _compared(run)
    rest = [f"{name} {values[name]}" for name in differing if name != "method" and name in values]
    return ", ".join([str(values.get("method", run.name)), *rest[:3]])


def run_origin(label: str, run: Run) -> RunOrigin:
    """The origin of a run, of the group with this label: its `run.json` without settings and results."""
    record = asdict(run.record) if run.record else {}
    facts = {
        name.removeprefix("versions.").replace("_", " "): str(value)
        for name, value in leaves(record)
        if (value or value == 0) and not name.startswith(("settings.", "summary."))
    }
    return RunOrigin(name=run.name, label=label, facts=facts, config=dump_yaml(run.settings) if run.settings else "")
