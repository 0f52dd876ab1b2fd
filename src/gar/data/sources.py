"""Names of data sources and places in them, and the checks that need no look inside."""

import re
from pathlib import Path

from gar.errors import ConfigError, DataError, did_you_mean

FILE_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
"""Endings of the files that `iter_rows` reads."""
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def row_place(source: str, number: int) -> str:
    """The place of a row, as errors name it: `anchors.jsonl:412`, or `train.parquet row 412`. Counts from 1."""
    return f"{source}:{number}" if source.endswith(".jsonl") else f"{source} row {number}"


def source_name(source: str) -> str:
    """The short name of a source: `anchors` for data/anchors.jsonl, `NuminaMath-1.5` for AI-MO/NuminaMath-1.5."""
    path = Path(source)
    return path.stem if path.suffix in FILE_SUFFIXES else path.name


def check_source(source: str) -> None:
    """Raise a `DataError` for what cannot be a data source by its name and kind, without reading it."""
    path = Path(source)
    if not source.strip():
        raise DataError("the name of the data source is empty.")
    expected = f"Expected {', '.join(FILE_SUFFIXES)}, a folder of such files, or a data set on the Hub."
    if path.is_dir():
        if not any(file.suffix in FILE_SUFFIXES for file in path.rglob("*")):
            raise DataError(f"{source}: the folder holds no data. {expected}")
    elif path.exists():
        if not source.endswith(FILE_SUFFIXES):
            raise DataError(f"{source}: unknown kind of file. {expected}")
    elif source.endswith(FILE_SUFFIXES) or not _HUB_ID.fullmatch(source):
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, siblings, prefix=source.removesuffix(path.name))
        raise DataError(f"{source}: no such file.{hint}")
    elif "/" not in source:
        hint = did_you_mean(source, [entry.name for entry in Path().iterdir()])
        raise DataError(f"{source}: no such file or folder, and a data set on the Hub is OWNER/NAME.{hint}")


def unreachable(source: str, reason: object) -> DataError:
    """The error for a data set that is neither on this machine nor loaded from the Hub."""
    return DataError(
        f"{source}: no folder of that name here, and the Hub cannot be reached ({reason}). Offline (HF_HUB_OFFLINE is "
        "set, or there is no network), give a local .jsonl or .parquet file or a downloaded folder."
    )


def check_suffix(path: Path, *suffixes: str) -> None:
    """Raise a `ConfigError` for an output that ends in none of `suffixes`."""
    if path.suffix not in suffixes:
        raise ConfigError(f"{path}: expected a name that ends in {' or '.join(suffixes)}.")
