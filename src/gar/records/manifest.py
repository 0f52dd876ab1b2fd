"""The finished files of a folder: `manifest.jsonl` lists each with its size and checksum.

    manifest = Manifest(folder, settings=[settings_hash])
    manifest.add("evaluation/after.json", "evaluation/after.parquet")
    content = manifest.read("evaluation/after.json")

A line is written after its files, whole or not at all: a file that no line lists does not count. The last line that
names a file is valid. Whoever reads a file compares it with its line. A changed file is an error, never a number.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import xxhash
from pydantic import Field

from gar.errors import RecordError
from gar.records.checked import checked
from gar.records.files import (
    append_line,
    json_object,
    json_text,
    read_bytes,
    sync_file,
    system_errors,
    write_atomic,
)

MANIFEST = "manifest.jsonl"
_BLOCK_BYTES = 2**20
_CHANGED = f"is not what was written: its size or checksum differs from {MANIFEST}"

FaultKind = Literal["missing", "changed", "unlisted", "foreign", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that is wrong with a folder, in words in `text`.

    Kinds are missing (listed and gone), changed (not what was listed), unlisted, foreign (written under other settings)
    and unreadable (not in its format). `file` is a path inside the folder.
    """

    kind: FaultKind
    file: str
    text: str

    def __str__(self) -> str:
        return self.text


class DamageError(RecordError):
    """A file is not what its folder's manifest lists. `fault` says how."""

    code = "damage"

    def __init__(self, folder: Path, fault: Fault):
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
    """One line of the manifest: files, the hash of the settings they were written under, and other facts."""

    files: Mapping[str, FileFacts]
    settings: str | None
    facts: Mapping[str, Any]


class Manifest:
    """The manifest of one folder.

    Args:
        folder: The folder.
        settings: Hashes of settings. New lines get the first. A file under a hash that is not among them is a fault.
            Empty: lines get none, and any is taken.
        size: Read the manifest as it was when it had so many bytes. None: as it is.
    """

    def __init__(self, folder: str | Path, settings: Sequence[str] = (), *, size: int | None = None):
        self.folder = Path(folder)
        self.path = self.folder / MANIFEST
        self._settings = tuple(settings)
        self._size = size
        self._forget()

    def add(self, *paths: str | Path, grows: bool = False, facts: Mapping[str, Any] | None = None) -> None:
        """List finished files, as paths below the folder or relative to it, in one line with further `facts`.

        `grows`: only what the files hold now is listed. More may be appended to them.
        """
        names = [self._name(path) for path in paths]
        files = {name: file_facts(self.folder / name, grows=grows) for name in names}
        line = json_text(asdict(_Line(files=files, settings=next(iter(self._settings), None), facts=facts or {})))
        if self.path.exists():
            append_line(self.path, line.encode())
        else:
            write_atomic(self.path, line + "\n")
        self._forget()

    def state(self) -> FileFacts:
        """The manifest as it is now, flushed to the disk: for `state_fault` and `cut`."""
        if not self.path.exists():
            return NO_FACTS
        sync_file(self.path)
        return file_facts(self.path)

    def state_fault(self, state: FileFacts) -> str | None:
        """What is wrong if the manifest no longer begins with an earlier `state`. None if nothing is."""
        now = file_facts(self.path, size=state.size) if self.path.exists() else NO_FACTS
        return None if now == state else f"{MANIFEST} no longer begins with the {state.size:,} bytes that it had"

    def cut(self, state: FileFacts, *, only: tuple[str, ...]) -> None:
        """Go back to an earlier state, for files whose names begin with one of `only`: later lines of others stay."""
        content = read_bytes(self.path) if self.path.exists() else b""
        later = content[state.size :].split(b"\n")[:-1]
        kept = [line for line in later if not any(name.startswith(only) for name in json.loads(line)["files"])]
        if len(kept) < len(later):
            write_atomic(self.path, content[: state.size] + b"".join(line + b"\n" for line in kept))
        self._forget()

    @property
    def entries(self) -> Mapping[str, FileFacts]:
        """The listed files by name, in the order of their lines."""
        return {name: facts for name, (facts, _) in self._contents[0].items()}

    @property
    def facts(self) -> Mapping[str, Any]:
        """Further values of the lines. Later lines win."""
        return self._contents[1]

    def read(self, path: str | Path) -> bytes:
        """The content of a file. A `DamageError` if it is not what was listed."""
        name = self._name(path)
        facts, content = self._listed(name), read_bytes(self.folder / name)
        part = content[: facts.size] if facts.grows else content
        if len(part) != facts.size or xxhash.xxh3_128_hexdigest(part) != facts.xxh3:
            raise self._damage("changed", name, _CHANGED)
        self._sound.add(name)
        return content

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
                raise self._damage("changed", name, _CHANGED)
            self._sound.add(name)

    def fault(self, path: str | Path) -> Fault | None:
        """What is wrong with a file. None if it is what was listed."""
        try:
            self.check(path)
        except DamageError as error:
            return error.fault
        return None

    def faults(self) -> list[Fault]:
        """What is wrong with the manifest, with every listed file, and which files it does not list."""
        return [*self.own_faults, *(fault for name in (*self.entries, *self.unlisted()) if (fault := self.fault(name)))]

    @property
    def own_faults(self) -> list[Fault]:
        """What is wrong with the manifest itself."""
        return list(self._contents[2])

    def unlisted(self) -> list[str]:
        """Files below the folder that are not listed. Hidden ones do not count."""
        paths = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return sorted({self._name(path) for path in paths} - {*self.entries, MANIFEST})

    def _listed(self, name: str) -> FileFacts:
        """The facts of a file that is there, listed, and of these settings."""
        there = (self.folder / name).is_file()
        facts, settings = self._contents[0].get(name, (None, None))
        if facts is None and there:
            raise self._damage("unlisted", name, f"is not listed in {MANIFEST}")
        if facts is None or not there:
            raise self._damage("missing", name, "is missing")
        if self._settings and settings not in self._settings:
            raise self._damage("foreign", name, "was written under other settings")
        return facts

    def _damage(self, kind: FaultKind, name: str, text: str) -> DamageError:
        return DamageError(self.folder, Fault(kind=kind, file=name, text=f"{name} {text}"))

    @property
    def _contents(self) -> tuple[dict[str, tuple[FileFacts, str | None]], dict[str, Any], list[Fault]]:
        if self._read is None:
            files: dict[str, tuple[FileFacts, str | None]] = {}
            others: dict[str, Any] = {}
            faults: list[Fault] = []
            for number, text in enumerate(_whole_lines(self.path, self._size), start=1):
                place = f"{self.path}:{number}"
                try:
                    line = checked(_Line, json_object(text, place), place)
                except RecordError as error:
                    faults.append(Fault(kind="unreadable", file=MANIFEST, text=f"{MANIFEST} is damaged ({error})"))
                    continue
                for name, facts in line.files.items():
                    files.pop(name, None)  # the order is that of the last lines
                    files[name] = facts, line.settings
                others.update(line.facts)
            self._read = files, others, faults
        return self._read

    def _forget(self) -> None:
        self._read: tuple[dict[str, tuple[FileFacts, str | None]], dict[str, Any], list[Fault]] | None = None
        self._sound: set[str] = set()

    def _name(self, path: str | Path) -> str:
        path = Path(path)
        return (path.relative_to(self.folder) if path.is_relative_to(self.folder) else path).as_posix()


def file_facts(path: Path, *, grows: bool = False, size: int | None = None) -> FileFacts:
    """Size and checksum of a file, or of its first `size` bytes, in bounded memory."""
    digest, count = xxhash.xxh3_128(), 0
    with system_errors(path, "read"), path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES if size is None else min(_BLOCK_BYTES, size - count)):
            digest.update(block)
            count += len(block)
    return FileFacts(size=count, xxh3=digest.hexdigest(), grows=grows)


NO_FACTS = FileFacts(size=0, xxh3=xxhash.xxh3_128_hexdigest(b""), grows=False)
"""The facts of a manifest that does not exist."""


def _whole_lines(path: Path, size: int | None) -> Iterator[bytes]:
    """The lines of a file, or of its first `size` bytes, without a torn last one. None if there is no file."""
    if os.path.lexists(path):
        yield from read_bytes(path)[:size].split(b"\n")[:-1]
