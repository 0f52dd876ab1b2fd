"""`metrics.jsonl`: one object of numbers for each logged step, in ascending order of `step`.

A kill leaves a torn last line at most, which does not count. A resume cuts the file by its steps.
"""

import hashlib
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gar.errors import RecordError
from gar.records.files import append_bytes, json_object, json_text, whole_lines

METRICS = "metrics.jsonl"
_STEP = re.compile(rb'{"step": (\d{1,19})[,}]')


def append_metrics(path: Path, metrics: Mapping[str, Any]) -> None:
    """Add a line that begins with the step. It survives a kill as soon as this returns. NaN becomes null."""
    append_bytes(path, json_text({"step": metrics["step"], **metrics}).encode() + b"\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows, without values that are not numbers. Empty if there is no such file.

    Raises:
        RecordError: A line is no JSON object, has no step, or a smaller one than the line before.
    """
    rows, last = list[dict[str, Any]](), 0
    for number, line in enumerate(whole_lines(path), start=1):
        place = f"{path}:{number}"
        row = json_object(line, place)
        step = row.get("step")
        if type(step) is not int or not 0 <= step < 2**63:
            raise RecordError(f"{place}: 'step' must be a whole number, got {reprlib.repr(step)}.")
        if step < last:
            raise RecordError(f"{place}: step {step} comes after step {last}.")
        last = step
        rows.append({name: value for name, value in row.items() if _is_number(value)})
    return rows


def beginning(path: Path, step: int) -> tuple[int, str]:
    """Size in bytes and SHA-256 of the lines up to a step. They end before a line that does not begin with one."""
    size, digest = 0, hashlib.sha256()
    for line in whole_lines(path):
        found = _STEP.match(line)
        if found is None or int(found[1]) > step:
            break
        size += len(line)
        digest.update(line)
    return size, digest.hexdigest()


def _is_number(value: Any) -> bool:
    """Whether a value is a number, or missing."""
    return value is None or type(value) is float or (type(value) is int and abs(value) < 2**63)
