"""The finished files of a folder: `manifest.jsonl` lists each with its size and checksum.

    manifest = Manifest(folder, settings=[settings_hash])
    manifest.add("evaluation/after.json", "evaluation/after.parquet")
    content = manifest.read("evaluation/after.json")

A line is written after its files, whole or not at all. A file without a line does not count. The last line of a file
is valid. Readers compare a file with its line, so a changed file is an error, never a number.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import xxhash
from pydantic import Field

from gar.errors import RecordError
from gar.records.files import (
    append_line,
    checked,
    json_object,
    read_bytes,
    regular,
    sync,
    system_errors,
    write_atomic,
)

MANIFEST = "manifest.jsonl"
_BLOCK_BYTES = 2**20

FaultKind = Literal["missing", "changed", "unlisted", "foreign", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A fault of a folder, in words in `text`. `file` is a path inside the folder.

    Kinds are missing (listed and gone), changed (not what was listed), unlisted, foreign (written under other settings)
    and unreadable (not in its format).
    """

    kind: FaultKind
    file: str
    text: str

    def __str__(self) -> str:
        return self.text


class DamageError(RecordError):
    """A file is not what its folder's manifest lists. `fault` is the difference."""

    code = "damage"

    def __init__(self, folder: Path, fault: Fault) -> None:
        super().__init__(f"{folder}: {fault}. Was it edited, cut off or copied here? Put it back, or make it again.")
        self.fault = fault


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """Size in bytes and XXH3 checksum (128 bits, hexadecimal) of a file, or of the beginning of one that grows."""

    size: Annotated[int, Field(ge=0)]
    xxh3: str
    grows: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """One line of the manifest: files, and the hash of the settings they were written under."""

    files: Mapping[str, FileFacts]
    settings: str | None


class Manifest:
    """The manifest of one folder.

    Args:
        folder: The folder.
        settings: Hashes of settings. New lines get the first. A file under a hash that is not among them is a fault.
            Empty: lines get none, and any is taken.
        until: The beginning of a name. Lines after the last that lists such a file do not count. None: all count.
    """

    def __init__(self, folder: str | Path, *, settings: Sequence[str] = (), until: str | None = None):
        self.folder = Path(folder)
        self.path = self.folder / MANIFEST
        self._settings = tuple(settings)
        self._until = until
        self._sound: set[str] = set()

    def add(self, *paths: str | Path, grows: Sequence[str] = ()) -> None:
        """List finished files in one line, as paths below the folder or relative to it.

        Files in `grows` may grow later: only their present content is listed. The manifest may be one of them. A line
        with such files is flushed to the disk.
        """
        names = {self._name(path): False for path in paths} | dict.fromkeys(grows, True)
        if not names:
            return
        files = {name: file_facts(self.folder / name, grows=more) for name, more in names.items()}
        line = json.dumps(asdict(_Line(files=files, settings=next(iter(self._settings), None))))
        if self.path.exists():
            append_line(self.path, line.encode())
            if grows:
                sync(self.path)
        else:
            write_atomic(self.path, line + "\n")
        self._forget()

    def cut(self, *, only: tuple[str, ...]) -> None:
        """Drop damaged lines after `until`, and lines with a file name that begins with one of `only`."""
        later = [(text, line) for text, line in self._lines[self._end :] if isinstance(line, _Line)]
        kept = self._lines[: self._end] + [(text, line) for text, line in later if not _names(line, only)]
        if len(kept) < len(self._lines):
            write_atomic(self.path, b"".join(text + b"\n" for text, _ in kept))
        self._forget()

    @property
    def entries(self) -> Mapping[str, FileFacts]:
        """The listed files by name, in the order of their lines."""
        return {name: facts for name, (facts, _) in self._files.items()}

    def read(self, path: str | Path) -> bytes:
        """The content of a file. A `DamageError` if it is not what was listed."""
        self.check(path)
        return read_bytes(self.folder / self._name(path))

    def check(self, path: str | Path) -> None:
        """Raise a `DamageError` if a file is not what was listed. Reads it once, in bounded memory."""
        name = self._name(path)
        facts = self._listed(name)
        if name not in self._sound:
            size = facts.size if facts.grows else None
            try:
                now = file_facts(self.folder / name, grows=facts.grows, size=size)
            except RecordError as error:
                raise self._damage("unreadable", name, f"cannot be read ({error})") from error
            if now != facts:
                text = f"is not what was written: its size or checksum differs from {MANIFEST}"
                raise self._damage("changed", name, text)
            self._sound.add(name)

    def fault(self, path: str | Path) -> Fault | None:
        """What is wrong with a file. None if it is what was listed."""
        try:
            self.check(path)
        except DamageError as error:
            return error.fault
        return None

    @property
    def own_faults(self) -> list[Fault]:
        """What is wrong with the manifest itself."""
        texts = [str(line) for _, line in self._lines[: self._end] if isinstance(line, RecordError)]
        return [Fault(kind="unreadable", file=MANIFEST, text=f"{MANIFEST} is damaged ({text})") for text in texts]

    def unlisted(self) -> list[str]:
        """Files below the folder that are not listed. Hidden ones do not count."""
        paths = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return sorted({self._name(path) for path in paths} - {*self._files, MANIFEST})

    def _listed(self, name: str) -> FileFacts:
        """The facts of a file that is there, listed, and of these settings."""
        there = (self.folder / name).is_file()
        facts, settings = self._files.get(name, (None, None))
        if facts is None and there:
            raise self._damage("unlisted", name, f"is not listed in {MANIFEST}")
        if facts is None or not there:
            raise self._damage("missing", name, "is missing")
        if self._settings and settings not in self._settings:
            raise self._damage("foreign", name, "was written under other settings")
        return facts

    def _damage(self, kind: FaultKind, name: str, text: str) -> DamageError:
        return DamageError(self.folder, Fault(kind=kind, file=name, text=f"{name} {text}"))

    @cached_property
    def _lines(self) -> list[tuple[bytes, _Line | RecordError]]:
        """Every whole line with its content, or with its error if it is damaged. A torn last line does not count."""
        texts = read_bytes(self.path).split(b"\n")[:-1] if os.path.lexists(self.path) else []
        return [(text, _parsed(text, f"{self.path}:{number}")) for number, text in enumerate(texts, start=1)]

    @cached_property
    def _end(self) -> int:
        """How many lines count."""
        if self._until is None:
            return len(self._lines)
        ends = [n for n, (_, line) in enumerate(self._lines, start=1) if _names(line, self._until)]
        return max(ends, default=0)

    @cached_property
    def _files(self) -> dict[str, tuple[FileFacts, str | None]]:
        """Each listed file with its settings, in the order of the last lines that list them."""
        files: dict[str, tuple[FileFacts, str | None]] = {}
        for line in (line for _, line in self._lines[: self._end] if isinstance(line, _Line)):
            for name, facts in line.files.items():
                files.pop(name, None)
                files[name] = facts, line.settings
        return files

    def _forget(self) -> None:
        for name in ("_lines", "_end", "_files"):
            vars(self).pop(name, None)
        self._sound.clear()

    def _name(self, path: str | Path) -> str:
        path = Path(path)
        return (path.relative_to(self.folder) if path.is_relative_to(self.folder) else path).as_posix()


def file_facts(path: Path, *, grows: bool = False, size: int | None = None) -> FileFacts:
    """Size and checksum of a file, or of its first `size` bytes, in bounded memory."""
    digest, count = xxhash.xxh3_128(), 0
    with system_errors(path, "read"), regular(path).open("rb") as file:
        while block := file.read(_BLOCK_BYTES if size is None else min(_BLOCK_BYTES, size - count)):
            digest.update(block)
            count += len(block)
    return FileFacts(size=count, xxh3=digest.hexdigest(), grows=grows)


def _parsed(text: bytes, place: str) -> _Line | RecordError:
    try:
        return checked(_Line, json_object(text, place), place)
    except RecordError as error:
        return error


def _names(line: _Line | RecordError, beginnings: str | tuple[str, ...]) -> bool:
    """Whether a line lists a file name with one of these beginnings."""
    return isinstance(line, _Line) and any(name.startswith(beginnings) for name in line.files)
