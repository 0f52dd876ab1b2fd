"""`metrics.jsonl`: one JSON object per logged step. Readers leave out damaged lines and name them."""

import os
import reprlib
from pathlib import Path
from typing import Any

from gar.errors import RecordError
from gar.records.files import json_object, read_bytes


def sound_metrics(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows that have a step, in ascending order of steps; none where there is no such file.

    A last line without its line end comes from a killed writer, and does not count.

    Returns:
        The rows, and a sentence for each line or value that was left out.

    Raises:
        RecordError: The file cannot be read at all.
    """
    rows: list[dict[str, Any]] = []
    faults: list[str] = []
    *lines, rest = read_bytes(path).split(b"\n") if os.path.lexists(path) else [b""]
    for number, line in enumerate(lines, start=1):
        place = f"{path}:{number}"
        try:
            row = json_object(line, place)
        except RecordError as error:
            faults.append(str(error))
            continue
        step = row.get("step")
        if type(step) is not int or not 0 <= step < 2**63:
            faults.append(f"{place}: 'step' must be a whole number, got {reprlib.repr(step)}.")
        elif rows and step < rows[-1]["step"]:
            faults.append(f"{place}: step {step} comes after step {rows[-1]['step']}.")
        else:
            rows.append(row)
    if rest.endswith(b"\0"):
        faults.append(f"{path}: zero bytes at the end, as a loss of power leaves them.")
    return rows, faults


def sound_numbers(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """As `sound_metrics`, without values that are not numbers, such as a text that a callback has logged.

    A value that is a number in one row and something else in another is a fault.
    """
    rows, faults = sound_metrics(path)
    numbers = {name for row in rows for name, value in row.items() if _is_number(value)}
    for row in rows:
        for name in [name for name, value in row.items() if value is not None and not _is_number(value)]:
            value = row.pop(name)
            if name in numbers:
                faults.append(f"{path}: step {row['step']}: {name!r} must be a number, got {reprlib.repr(value)}.")
    return rows, faults


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)
