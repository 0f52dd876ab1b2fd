"""The finished files of a folder: each line of `manifest.jsonl` lists some, with size and checksum.

    manifest = Manifest(folder)
    manifest.add("evaluation/after.json")               # a file that is there
    manifest.append("metrics.jsonl", b'{"step": 1}\\n')  # a file that grows
    manifest.replace("run.json", content)               # a file that is written again
    content = manifest.read("evaluation/after.json")

The last line of a file is valid, and a file without a line does not count. Readers compare a file with its line, so a
changed file is an error, never a number. A line has its number, the id of its folder and a checksum. So any one that
was edited, moved, repeated, removed or copied from another folder is found, and the others stay valid.
"""

import os
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from xxhash import xxh3_128

from gar.errors import RecordError
from gar.records.files import (
    append_bytes,
    json_object,
    read_bytes,
    regular,
    system_errors,
    truncate,
    write_atomic,
)
from gar.records.manifest_lines import FileFacts, Files, Line, line_text, parse_line

MANIFEST = "manifest.jsonl"
_BLOCK_BYTES = 2**20

FaultKind = Literal["missing", "changed", "unlisted", "foreign", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A fault of a folder, in words in `text`. `file` is a path inside the folder.

    Kinds are missing (listed and gone), changed (not what was listed), unlisted, foreign (a line of another folder) and
    unreadable (not in its format).
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
        self.folder, self.fault = folder, fault

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made of the same arguments."""
        return type(self), (self.folder, self.fault), super().__reduce__()[2]


def fault_of(name: str, error: Exception, unknown: str = "") -> Fault:
    """What is wrong with a file, from the error that its reader raised. `unknown` is what it leaves unknown."""
    if isinstance(error, DamageError):
        return error.fault
    return Fault(kind="unreadable", file=name, text=f"{name} cannot be read{unknown} ({error})")


@dataclass(slots=True)
class _Known:
    """What the lines list. `end` is their size in bytes, `number` the last one's. `inside` has the files by folder."""

    stamp: object
    end: int
    id: str
    number: int = 0
    faults: list[Fault] = field(default_factory=list)
    files: dict[str, FileFacts] = field(default_factory=dict)
    inside: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, files: Files) -> None:
        """Add the files of a line, after all earlier ones."""
        for name, facts in files.items():
            self.files.pop(name, None)
            folder = name
            while folder := folder.rpartition("/")[0]:
                self.inside[folder].pop(name, None)
                if facts is not None:
                    self.inside[folder][name] = None
            if facts is not None:
                self.files[name] = facts


class Manifest:
    """The manifest of one folder. It notices what another process adds.

    Args:
        folder: The folder.
        name: The manifest's file in it.
        id: The id of the folder, if it is known. Lines with a different one do not count. None: the first line's.
        keep_lines: Whether they stay in memory until the next one is written. `until` then reads nothing.
    """

    def __init__(self, folder: str | Path, *, name: str = MANIFEST, id: str | None = None, keep_lines: bool = False):
        self.folder = Path(folder)
        self.path = self.folder / name
        self._id, self._keep_lines = id, keep_lines
        self._until: str | None = None
        self._cached: _Known | None = None
        self._read: tuple[list[Line], _Known] | None = None
        self._sound: dict[str, Any] = {}  # running checksums of the files that were found whole

    def until(self, beginning: str) -> "Manifest":
        """The manifest up to its last line that lists a file with a name that begins so. It checks every file anew."""
        earlier = Manifest(self.folder, name=self.path.name, id=self._id, keep_lines=True)
        earlier._until, earlier._read = beginning, self._read
        return earlier

    def add(self, *paths: str | Path, again: Iterable[str] = (), gone: Iterable[str] = ()) -> None:
        """List finished files in one line, as paths below the folder or relative to it.

        The line repeats the facts of the files in `again`. Files in `gone` are listed no more.
        """
        files: Files = dict.fromkeys(gone)
        files |= {name: self.entries[name] for name in again}
        files |= {name: _read_facts(self.folder / name)[0] for name in map(self._name, paths)}
        if files:
            self._list(files)

    def add_folder(
        self, path: str | Path, *further: str | Path, again: Iterable[str] = (), gone: Iterable[str] = ()
    ) -> None:
        """List all files in a folder, in place of those listed earlier, and `further` ones."""
        there = self._there(path)
        self.add(*there, *further, again=again, gone={*self.below(path), *gone} - {*there})

    def append(self, path: str | Path, content: bytes) -> None:
        """Add content to a file that grows, and list it: all of it counts, or none. Leftovers of a kill are cut off."""
        name = self._name(path)
        # 1. What is there must be what was listed, and its running checksum is known.
        if name in self.entries:
            self.check(name)
        grown = self._sound[name].copy() if name in self.entries else xxh3_128()
        size = self.entries[name].size if name in self.entries else 0
        # 2. Write, then list. A kill between the two leaves bytes behind the listed size, which do not count.
        grown.update(content)
        append_bytes(self.folder / name, content, at=size)
        self._list({name: FileFacts(size=size + len(content), xxh3=grown.hexdigest(), grows=True)})
        self._sound[name] = grown

    def close(self, path: str | Path) -> None:
        """List a file that no longer grows, without leftovers of a kill."""
        name = self._name(path)
        self.check(name)
        truncate(self.folder / name, self.entries[name].size)
        self._list({name: replace(self.entries[name], grows=False)})

    def replace(self, path: str | Path, content: bytes) -> None:
        """Write a whole file, or leave the earlier one, which must be what was listed. A kill leaves either, listed."""
        name, facts = self._name(path), FileFacts(size=len(content), xxh3=xxh3_128(content).hexdigest())
        earlier = None
        if os.path.lexists(self.folder / name):
            self.check(name)
            earlier = _read_facts(self.folder / name)[0].xxh3
        self._list({name: replace(facts, earlier=earlier)})  # first: a file that no line lists would be at fault
        write_atomic(self.folder / name, content)
        self._list({name: facts})

    def cut(self, *, until: str | None = None, only: tuple[str, ...] = ()) -> None:
        """Drop damaged lines. Of later lines than `until`, also drop the files whose names begin with one of `only`."""
        lines, known = self._lines()
        end, same = _end(lines, until), list[bytes]()
        rest = [{n: f for n, f in line.files.items() if f is None or not n.startswith(only)} for line in lines[end:]]
        if known.faults:  # all lines get new numbers
            rest = [*(line.files for line in lines[:end]), *rest]
        elif rest == [line.files for line in lines[end:]]:
            return
        else:
            same = read_bytes(self.path).splitlines(keepends=True)[:end]
        numbered = enumerate(filter(None, rest), start=len(same) + 1)
        written = [Line(number=number, id=known.id, files=files) for number, files in numbered]
        content = b"".join([*same, *map(line_text, written)])
        write_atomic(self.path, content)
        kept = [*lines[: len(same)], *written]
        self._read = kept, _Known(self._stamp(), len(content), known.id, number=len(kept))

    @property
    def id(self) -> str:
        """The id of the folder: random, and in every line."""
        return self._now.id

    @property
    def entries(self) -> dict[str, FileFacts]:
        """The listed files by name, in the order of their lines."""
        return self._now.files

    def below(self, path: str | Path) -> list[str]:
        """The names of all files in a folder: those listed, and those there. Hidden ones do not count."""
        return list(dict.fromkeys([*self.listed_below(path), *self._there(path)]))

    def listed_below(self, path: str | Path) -> list[str]:
        """The names of all listed files in a folder."""
        return list(self._now.inside.get(self._name(path), ()))

    def read(self, path: str | Path) -> bytes:
        """The content of a file. A `DamageError` if it is not what was listed."""
        self.check(path)
        facts = self.entries[self._name(path)]
        return read_bytes(self.folder / self._name(path))[: facts.size if facts.grows else None]

    def read_json(self, path: str | Path) -> dict[str, Any]:
        """The JSON object in a file. A `RecordError` if it is something else, or not what was listed."""
        return json_object(self.read(path), str(self.folder / path))

    def lines(self, path: str | Path) -> Iterator[bytes]:
        """The listed lines of a file, which is read anew in bounded memory. Yields nothing if it is not listed."""
        facts = self.entries.get(self._name(path))
        if facts is None:
            return
        self.check(path, again=True)
        with system_errors(self.folder / path, "read"), regular(self.folder / path).open("rb") as file:
            left = facts.size
            for line in file:
                left -= len(line)
                if left < 0:  # not listed
                    return
                yield line

    def check(self, path: str | Path, *, again: bool = False) -> None:
        """Raise a `DamageError` if a file is not what was listed. Reads it once, or `again`, in bounded memory."""
        name = self._name(path)
        facts = self._listed(name)
        if name in self._sound and not again:
            return
        try:
            now, digest = _read_facts(self.folder / name, facts.size if facts.grows else None)
        except RecordError as error:
            raise self._damage("unreadable", name, f"cannot be read ({error})") from error
        if (now.size, now.xxh3) != (facts.size, facts.xxh3) and now.xxh3 != facts.earlier:
            if self._listed(name) != facts:  # written meanwhile
                return self.check(name, again=again)
            text = f"is not what was written: its size or checksum differs from {self.path.name}"
            raise self._damage("changed", name, text)
        self._sound[name] = digest

    def fault(self, path: str | Path) -> Fault | None:
        """What is wrong with a file. None if it is what was listed."""
        try:
            self.check(path)
        except DamageError as error:
            return error.fault
        return None

    @property
    def own_faults(self) -> list[Fault]:
        """What is wrong with the lines of the manifest."""
        return self._now.faults

    def faults(self) -> list[Fault]:
        """All that is wrong with the folder. Reads every file."""
        return [*self.own_faults, *filter(None, map(self.fault, [*self.entries, *self.unlisted()]))]

    def unlisted(self) -> list[str]:
        """Files below the folder that are not listed. Hidden ones do not count."""
        return sorted({*self._there(self.folder)} - {*self.entries, self.path.name})

    def _there(self, path: str | Path) -> list[str]:
        names = [self._name(found) for found in (self.folder / self._name(path)).rglob("*") if found.is_file()]
        return [name for name in names if "/." not in f"/{name}"]

    def _listed(self, name: str) -> FileFacts:
        """The facts of a file that is there and listed."""
        facts, there = self.entries.get(name), (self.folder / name).is_file()
        if facts is None and there:
            raise self._damage("unlisted", name, f"is not listed in {self.path.name}")
        if facts is None or not there:
            raise self._damage("missing", name, "is missing")
        return facts

    def _damage(self, kind: FaultKind, name: str, text: str) -> DamageError:
        return DamageError(self.folder, Fault(kind=kind, file=name, text=f"{name} {text}"))

    def _list(self, files: Files) -> None:
        """Add a line, whole or not at all."""
        known, self._read = self._now, None
        text = line_text(Line(number=known.number + 1, id=known.id, files=files))
        append_bytes(self.path, text, at=known.end)
        for name in [name for name, facts in files.items() if facts != known.files.get(name)]:
            self._sound.pop(name, None)
        known.take(files)
        known.number, known.end, known.stamp = known.number + 1, known.end + len(text), self._stamp()

    @property
    def _now(self) -> _Known:
        """What is listed. Read again if another process has written."""
        if self._cached is None or self._cached.stamp != self._stamp():
            lines, known = self._lines()
            self._cached = replace(known, files={}, inside=defaultdict(dict))
            self._sound.clear()
            for line in lines[: _end(lines, self._until)]:
                self._cached.take(line.files)
        return self._cached

    def _lines(self) -> tuple[list[Line], _Known]:
        """The valid lines by number, and the faults of the others. A torn last line is no fault."""
        stamp = self._stamp()
        if self._read is not None and self._read[1].stamp == stamp:
            return self._read
        *texts, torn = (content := read_bytes(self.path) if stamp else b"").split(b"\n")
        known = _Known(stamp=stamp, end=len(content) - len(torn), id=self._id or "")
        name, lines, foreign = self.path.name, list[Line](), 0
        # Each text is damaged, another folder's, or a line of this folder, whose number must follow the last one's.
        for place, text in enumerate(texts, start=1):
            line = parse_line(text)
            known.id = known.id or (line.id if line else "")
            if line is None:
                text = f"{name}:{place} is damaged"
                known.faults.append(Fault(kind="unreadable", file=name, text=text))
                known.number += 1
            elif line.id != known.id:
                foreign = foreign or place
            else:
                if line.number != known.number + 1:
                    text = f"{name}:{place} is line {line.number} after line {known.number}: lines were lost or moved"
                    known.faults.append(Fault(kind="changed", file=name, text=text))
                known.number = line.number
                lines.append(line)
        if foreign:
            text = f"{name} has lines of another folder, the first is line {foreign}"
            known.faults.append(Fault(kind="foreign", file=name, text=text))
        lines.sort(key=attrgetter("number"))
        known.number = max([known.number, *(line.number for line in lines[-1:])])
        known.id = known.id or secrets.token_hex(8)
        self._read = (lines, known) if self._keep_lines else None
        return lines, known

    def _stamp(self) -> object:
        """What changes whenever the file does. None if there is none."""
        if not os.path.lexists(self.path):
            return None
        with system_errors(self.path, "read"):
            now = self.path.stat()
        return now.st_ino, now.st_size, now.st_mtime_ns

    def _name(self, path: str | Path) -> str:
        path = Path(path)
        return (path.relative_to(self.folder) if path.is_relative_to(self.folder) else path).as_posix()


def file_hash(path: Path) -> str:
    """XXH3 checksum of a file, in bounded memory."""
    return _read_facts(path)[0].xxh3


def _read_facts(path: Path, size: int | None = None) -> tuple[FileFacts, Any]:
    """Facts of a file, or of its first `size` bytes, and the running checksum."""
    digest, count = xxh3_128(), 0
    with system_errors(path, "read"), regular(path).open("rb") as file:
        while block := file.read(_BLOCK_BYTES if size is None else min(_BLOCK_BYTES, size - count)):
            digest.update(block)
            count += len(block)
    return FileFacts(size=count, xxh3=digest.hexdigest()), digest


def _end(lines: list[Line], until: str | None) -> int:
    """How many lines count: up to the last that lists a file with a name that begins so, None for all."""
    if until is None:
        return len(lines)
    for number, line in zip(range(len(lines), 0, -1), reversed(lines), strict=True):
        if any(name.startswith(until) and facts is not None for name, facts in line.files.items()):
            return number
    return 0
