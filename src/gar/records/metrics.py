"""`metrics.jsonl`: one JSON object per logged step."""

import reprlib
from pathlib import Path
from typing import Any

from gar.errors import RecordError
from gar.records.files import json_object

METRICS = "metrics.jsonl"


def metric_rows(content: bytes, path: Path) -> list[dict[str, Any]]:
    """The rows of the file, in ascending order of steps, without values that are not numbers.

    A last line without its line end comes from a killed writer, and does not count. An error names a line that is
    not a JSON object, or whose step is missing or smaller than the one before.
    """
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        place = f"{path}:{number}"
        row = json_object(line, place)
        step = row.get("step")
        if type(step) is not int or not 0 <= step < 2**63:
            raise RecordError(f"{place}: 'step' must be a whole number, got {reprlib.repr(step)}.")
        if rows and step < rows[-1]["step"]:
            raise RecordError(f"{place}: step {step} comes after step {rows[-1]['step']}.")
        rows.append({name: value for name, value in row.items() if value is None or _is_number(value)})
    return rows


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)
