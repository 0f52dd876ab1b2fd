"""The rows of `metrics.jsonl`, compact: a long run has as many as it has steps, each with the same names."""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gar.errors import RecordError
from gar.records.files import json_object
from gar.records.manifest import Manifest

Number = float | int | None


class MetricsRow(Mapping[str, Number]):
    """Numbers by name. Rows of the same names share these: a dict would take four times the memory."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: tuple[Number, ...]) -> None:
        self._places, self._values = places, values

    def __getitem__(self, name: str) -> Number:
        return self._values[self._places[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))


def read_metrics(manifest: Manifest, name: str) -> Sequence[MetricsRow]:
    """The rows, in ascending order of steps, without values that are not numbers. Empty if there is no such file.

    Raises:
        RecordError: The file is not what was written, or a line has no step, or a smaller one than that before.
    """
    path, rows = manifest.folder / name, list[MetricsRow]()
    shared: dict[tuple[str, ...], dict[str, int]] = {}
    last = 0
    for number, text in enumerate(manifest.lines(name), start=1):
        place = f"{path}:{number}"
        row = json_object(text, place)
        for key in [key for key, value in row.items() if type(value) is not float and not _is_number(value)]:
            del row[key]
        step = row.get("step")
        if type(step) is not int or not 0 <= step < 2**63:
            raise RecordError(f"{place}: 'step' must be a whole number, got {reprlib.repr(step)}.")
        if step < last:
            raise RecordError(f"{place}: step {step} comes after step {last}.")
        last = step
        names = tuple(row)
        places = shared.get(names) or shared.setdefault(names, {name: i for i, name in enumerate(names)})
        rows.append(MetricsRow(places, tuple(row.values())))
    return rows


def _is_number(value: Any) -> bool:
    """Whether a value that is no float is a number, or missing."""
    return value is None or (type(value) is int and abs(value) < 2**63)
