"""Checksums of finished files, in the format of coreutils: `sha256sum -c SHA256SUMS` in a folder checks them.

    write_sums(folder, {name: file_sum(folder / name) for name in files_below(folder)})
    check_sum(folder, "model/config.json", read_sums(folder))

`SHA256SUMS` is written and flushed after all that it lists, so a folder that has one was written completely.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from gar.errors import RecordError
from gar.records.files import read_bytes, regular, system_errors, write_atomic

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def file_sum(path: Path) -> str:
    """SHA-256 of a file, in bounded memory."""
    with system_errors(path, "read"), regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_below(folder: Path) -> list[str]:
    """The files in a folder and its subfolders, sorted, but for its `SHA256SUMS`. Hidden ones do not count."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return sorted(name for name in names if name != SUMS and "/." not in f"/{name}")


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Write `SHA256SUMS` of a folder: checksums by name, relative to the folder."""
    write_atomic(folder / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def read_sums(folder: Path) -> dict[str, str]:
    """The checksums in `SHA256SUMS` of a folder, by name. Empty if there is no such file.

    Raises:
        RecordError: A line is cut off or is not one of coreutils.
    """
    path = folder / SUMS
    if not path.exists():
        return {}
    *lines, rest = read_bytes(path).decode(errors="replace").split("\n")
    found = [_LINE.fullmatch(line) for line in lines]
    if rest or not all(found):
        raise RecordError(f"{path}: not a file of checksums. Was it edited or cut off?", code="damage")
    return {match[2]: match[1] for match in found if match}


def check_sum(folder: Path, name: str, sums: Mapping[str, str]) -> None:
    """Raise a `RecordError` with code "damage" if a file is missing, not listed, or not what was written."""
    check_listed(folder, name, sums)
    if file_sum(folder / name) != sums[name]:
        raise _damage(folder / name, f"is not what was written: its checksum differs from {SUMS}")


def check_listed(folder: Path, name: str, sums: Mapping[str, str]) -> None:
    """As `check_sum`, without reading the file."""
    if not (folder / name).is_file():
        raise _damage(folder / name, "is missing")
    if name not in sums:
        raise _damage(folder / name, f"is not listed in {SUMS}")


def _damage(path: Path, fault: str) -> RecordError:
    ways = "Was it edited, cut off or moved? Restore it, or make it again."
    return RecordError(f"{path} {fault}. {ways}", code="damage")
