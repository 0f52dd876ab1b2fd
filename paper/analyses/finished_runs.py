"""The finished runs of a comparison, from its results folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gar.errors import RecordError
from gar.records.checked import checked
from gar.records.files import read_json


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """One finished run, as `gar compare` recorded it.

    Attributes:
        label: Row of the comparison.
        seed: Seed of the run.
        settings: Settings of the run.
        pass_at: pass@k after training, by set and k.
        seconds_per_step: Median seconds of a step ("step") and of its parts.
    """

    label: str
    seed: int
    settings: Mapping[str, Any]
    pass_at: Mapping[str, Mapping[str, float]]
    seconds_per_step: Mapping[str, float] = field(default_factory=dict)


def read_finished_runs(folder: str | Path) -> tuple[list[FinishedRun], list[str]]:
    """The finished runs of a comparison, and notes about files that cannot be read.

    Raises:
        RecordError: The folder does not exist, or no result in it can be read.
    """
    path = Path(folder)
    if not path.is_dir():
        raise RecordError(f"{folder}: no such folder. `gar compare` writes results folders, by default results/NAME.")
    runs, faults = [], []
    files = sorted(file for file in path.glob("*-seed-*.json") if not file.name.endswith(".failed.json"))
    for file in files:
        try:
            runs.append(checked(FinishedRun, read_json(file), str(file)))
        except RecordError as error:
            faults.append(str(error))
    if not runs:
        raise RecordError(f"{folder}: no finished run of a comparison in it." + (f" {faults[0]}" if faults else ""))
    notes = [f"{len(faults)} of {len(files)} results left out, the first: {faults[0]}"] if faults else []
    failed = len(list(path.glob("*.failed.json")))
    return runs, [*notes, *([f"{failed} runs failed and are not shown."] if failed else [])]
