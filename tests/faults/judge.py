"""The contents of a folder without times, and its differences from another."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gar.errors import GarError
from gar.records import open_run

VOLATILE = {
    "start_time", "end_time", "resume_times", "resumed", "seconds", "step_seconds", "step_time", "tokens_per_second",
    "gar_time_fraction", "wall_seconds", "cpu_seconds", "peak_memory_bytes", "seconds_per_step", "shares_of_step",
}  # fmt: skip
"""Fields of JSON files that are times, like all metrics under `time/`."""

_NOT_COMPARED = {"SHA256SUMS", "table.md", "README.md"}
"""Hashes of files with times in them, tables of times, and the model cards that TRL writes."""


def contents(root: Path) -> dict[str, str]:
    """Every file under a folder by name, with a hash of what must not depend on faults.

    JSON counts without times, the rollouts of a run as one table, all else byte for byte. Nothing hidden counts.
    """
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not path.is_file() or "/." in f"/{name}" or path.name in _NOT_COMPARED or path.suffix == ".log":
            continue
        name = str(path.parent.relative_to(root)) if path.parent.name == "rollouts" else name
        try:
            found[name] = found.get(name) or _hash(path)
        except (GarError, ValueError) as error:
            found[name] = f"cannot be read: {error}"
    return found


def differences(expected: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """The differences of two folders in words. Empty if they are equal."""
    both = expected.keys() & there.keys()
    kinds = {
        "different": {name for name in both if expected[name] != there[name]},
        "missing": expected.keys() - there.keys(),
        "too much": there.keys() - expected.keys(),
    }
    return [f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names]


def acknowledged(root: Path) -> dict[str, str]:
    """Hashes of the files that a command must leave alone if it rejects its work: all but `run.json`."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.name != "run.json" and not path.name.startswith(".")
    }


def _hash(path: Path) -> str:
    if path.parent.name == "rollouts":
        value = open_run(path.parents[1]).rollouts().to_pylist()
    elif path.suffix == ".jsonl":
        value = [_without_times(json.loads(line)) for line in path.read_text().splitlines()]
    elif path.suffix == ".json":
        value = _without_times(json.loads(path.read_text()))
    else:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _without_times(part)
            for name, part in value.items()
            if name not in VOLATILE and not name.startswith("time/")
        }
    return [_without_times(part) for part in value] if isinstance(value, list) else value
