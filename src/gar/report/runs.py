"""The runs below a folder, and a table of all of them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records import Run, is_run_folder
from gar.records.run import MOMENTS
from gar.report.page import Table, columns
from gar.report.summary import NONE, arrow, edges, percent_text


def find_runs(paths: Sequence[str | Path]) -> dict[str, Path]:
    """Run folders by name: the given ones, and those below a given folder that is not a run folder.

    Raises:
        ConfigError: A run is named twice.
        RecordError: A path does not exist, or there is no run in it.
    """
    by_name: dict[str, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
        inside = [*_below(path)]
        if not inside:
            raise RecordError(f"{path}: no run in this folder: there is no run.json, metrics.jsonl or rollouts.")
        for run in inside:
            name = run.relative_to(path).as_posix() if run != path else run.resolve().name
            by_name[name if name not in by_name else str(run)] = run
    if len({run.resolve() for run in by_name.values()}) < len(by_name):
        raise ConfigError(f"a run is named twice, got {', '.join(map(str, paths))}")
    return by_name


def _below(folder: Path) -> Iterator[Path]:
    """Run folders in a folder, itself included. What lies inside a run folder is not searched."""
    for place, names, _ in os.walk(folder):
        names[:] = sorted(name for name in names if not name.startswith("."))
        if is_run_folder(Path(place)):
            names.clear()
            yield Path(place)


def runs_table(runs: Mapping[str, Run]) -> Table:
    """One line for each run, by name."""
    rates = {name: _pass_rates(run) for name, run in runs.items()}
    measured = list(dict.fromkeys(column for row in rates.values() for column in row))
    return Table(
        title="Runs",
        caption="Two numbers: of pass@k, before and after training, or of right responses, in the first and the last "
        "tenth of the steps.",
        columns=[
            *columns("run", "tags", "status", "method", "model", "problems", seed="seed", steps="steps", right="right"),
            *columns(**{f"{name} pass@{k}": "pass@k" for name, k in measured}),
            *columns("start"),
        ],
        rows=[
            [
                name,
                ", ".join(tags(run)),
                _text(run.record.get("status")),
                _text(run.settings.get("method")),
                _text(section_of(run, "model").get("path")),
                _text(section_of(run, "data").get("source")),
                _text(run.seed),
                f"{run.last_step:,}",
                arrow(*map(percent_text, edges(run, "gar/eligible_fraction"))),
                *(arrow(*rates[name].get(column, (NONE, NONE))) for column in measured),
                _text(run.record.get("start_time"))[:16].replace("T", " "),
            ]
            for name, run in runs.items()
        ],
    )


def tags(run: Run) -> list[str]:
    """Tags of a run, from its settings."""
    values = section_of(run, "records").get("tags")
    return [str(tag) for tag in values] if isinstance(values, list | tuple) else []


def section_of(run: Run, name: str) -> Mapping[str, Any]:
    """A section of a run's settings. Empty if it has none."""
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


def _text(value: Any) -> str:
    return NONE if value is None else str(value)
