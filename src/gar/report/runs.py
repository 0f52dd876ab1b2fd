"""The runs below a folder."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gar.errors import ConfigError, RecordError
from gar.records import is_run_folder


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
            raise RecordError(f"{path}: no run in this folder: there is no run.json, metrics.jsonl or rollouts.")
        runs += inside
    if len({run.resolve() for run in runs}) < len(runs):
        raise ConfigError(f"a run is named twice, got {', '.join(map(str, paths))}")
    return runs


def _below(folder: Path) -> Iterator[Path]:
    """Run folders in a folder, itself included. What lies inside a run folder is not searched."""
    for place, names, _ in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if is_run_folder(Path(place)):
            names.clear()
            yield Path(place)
