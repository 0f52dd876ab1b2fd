"""The runs below a folder, and a table of all of them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records import Run, is_run_folder
from gar.records.run import MOMENTS
from gar.report.page import Table, columns
from gar.report.summary import NONE, edges, percent_text

_MAX_DEPTH = 4


def find_runs(paths: Sequence[str | Path]) -> dict[str, Path]:
    """Run folders by name: the given ones, and those up to four levels below a given folder that is not a run folder.

    Raises:
        ConfigError: A run is named twice.
        RecordError: A path does not exist, or there is no run in it.
    """
    by_name: dict[str, Path] = {}
    for path in map(Path, paths):
        inside = [path] if is_run_folder(path) else [*_below(path, _MAX_DEPTH)]
        if not path.is_dir():
            raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
        if not inside:
            raise RecordError(
                f"{path}: neither a run folder nor a folder with run folders up to {_MAX_DEPTH} levels deep: there is "
                "no run.json, metrics.jsonl or rollouts."
            )
        for run in inside:
            name = run.relative_to(path).as_posix() if run != path else run.resolve().name
            by_name[name if name not in by_name else str(run)] = run
    if len({run.resolve() for run in by_name.values()}) < len(by_name):
        raise ConfigError(f"a run is named twice, got {', '.join(map(str, paths))}")
    return by_name


def _below(folder: Path, depth: int) -> Iterator[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return  # this user may not read the folder
    for path in (folder / name for name in names if not name.startswith(".")):
        if is_run_folder(path):
            yield path
        elif depth > 1:
            yield from _below(path, depth - 1)


def runs_table(runs: Mapping[str, Run]) -> Table:
    """One line for each run, by name."""
    rates = {name: _pass_rates(run) for name, run in runs.items()}
    measured = list(dict.fromkeys(column for row in rates.values() for column in row))
    return Table(
        title="Runs",
        caption="Two numbers: of pass@k, before and after training; of right responses, in the first and the last "
        "tenth of the steps.",
        columns=[
            *columns("run", "tags", "status", "method", "model", "problems", seed="seed", steps="steps", right="right"),
            *columns(**{f"{name} pass@{k}": "pass@k" for name, k in measured}),
            *columns("start"),
        ],
        rows=[
            [
                *_origin(name, run),
                NONE if run.seed is None else str(run.seed),
                f"{run.last_step:,}",
                _pair(*map(percent_text, edges(run, "gar/eligible_fraction"))),
                *(_pair(*rates[name].get(column, (NONE, NONE))) for column in measured),
                str(run.record.get("start_time", NONE))[:16].replace("T", " "),
            ]
            for name, run in runs.items()
        ],
    )


def tags(run: Run) -> list[str]:
    """Tags of a run, from its settings."""
    values = section_of(run, "records").get("tags")
    return [str(tag) for tag in values] if isinstance(values, list | tuple) else []


def _origin(name: str, run: Run) -> list[str]:
    model, data = section_of(run, "model").get("path"), section_of(run, "data").get("source")
    values = (run.record.get("status"), run.settings.get("method"), model, data)
    return [name, ", ".join(tags(run)), *(NONE if value is None else str(value) for value in values)]


def section_of(run: Run, name: str) -> Mapping[str, Any]:
    """A section of a run's settings; empty where it has none."""
    section = run.settings.get(name)
    return section if isinstance(section, Mapping) else {}


def _pass_rates(run: Run) -> dict[tuple[str, int], tuple[str, str]]:
    """pass@k before and after training at the smallest k of each set."""
    rates: dict[tuple[str, int], dict[str, str]] = {}
    for moment in MOMENTS:
        for name, part in run.evaluations[moment].items():
            for k, rate in sorted(part.known_rates.items())[:1]:
                rates.setdefault((name, k), {})[moment] = f"{rate:.3f}"
    return {column: (row.get("before", NONE), row.get("after", NONE)) for column, row in rates.items()}


def _pair(first: str, last: str) -> str:
    return NONE if first == last == NONE else f"{first} → {last}"
