"""Output that resumes after a kill: the identity of its run, and append-only lines of finished work.

The identity holds everything that the output depends on, as nested mappings: input, model, settings.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from gar.errors import ConfigError, RecordError
from gar.records.dotted import differences, in_words
from gar.records.files import (
    append_line,
    json_object,
    json_text,
    read_bytes,
    read_json,
    regular,
    remove_file,
    system_errors,
    write_atomic,
)

Line = dict[str, Any]


class FinishedLines:
    """A JSONL file with a line for each finished piece of work.

    The field `check` of a line is a checksum of the identity, of all lines before it and of its other fields. So a line
    that was edited, moved, repeated, removed or copied from another output is an error. A torn line of a killed writer
    does not count, and the next `append` cuts it off.
    """

    def __init__(self, path: Path, identity_path: Path) -> None:
        self.path = path
        self._identity_path = identity_path
        self._last: str | None = None  # the checksum of the last line, once it is known

    def __iter__(self) -> Iterator[Line]:
        """The whole lines, in bounded memory. A `RecordError` names a line that is not what was written."""
        last = xxh3_64_hexdigest(read_bytes(self._identity_path) if self._identity_path.exists() else b"")
        for number, line in enumerate(self._whole_lines(), start=1):
            check = line.pop("check", None)
            last = _next_check(last, line)
            if check != last:
                raise RecordError(
                    f"{self.path}:{number}: not what was written after the lines before it. Was the file edited, or "
                    "copied here? Put it back, or remove it and the files next to it to begin anew.",
                    code="damage",
                )
            yield line
        self._last = last

    def _whole_lines(self) -> Iterator[Line]:
        if not os.path.lexists(self.path):
            return
        with system_errors(self.path, "read"), regular(self.path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield json_object(line, f"{self.path}:{number}")

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines: all of them, or none. Earlier lines are intact whatever happens."""
        if self._last is None:
            for _ in self:
                pass
        last, texts = self._last or "", []
        for line in lines:
            last = _next_check(last, line)
            texts.append(json_text({**line, "check": last}).encode())
        if texts:
            append_line(self.path, b"\n".join(texts))
        self._last = last

    def remove(self) -> None:
        """Remove the file, if it is there."""
        remove_file(self.path)
        self._last = None


def _next_check(last: str, line: Mapping[str, Any]) -> str:
    return xxh3_64_hexdigest(f"{last} {json_text(line)}".encode())


@dataclass(frozen=True, slots=True)
class ResumableOutput:
    """Files of finished lines, and beside them a file with the identity of the run that writes them.

    `results` are files made from the lines, removed with them when another run begins. `ignored` are names of the
    identity that may differ when the output is resumed.
    """

    identity_path: Path
    lines: Sequence[FinishedLines]
    results: Sequence[Path] = ()
    ignored: Collection[str] = ()

    def exists(self) -> bool:
        """Whether an output was begun."""
        return self.identity_path.exists()

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Raise a `ConfigError` if the output is another run's, as far as the identity of this one is known yet."""
        stray = [lines.path for lines in self.lines if lines.path.exists()]
        if stray and not self.exists():
            raise ConfigError(
                f"{stray[0]}: finished work, but its settings in {self.identity_path.name} are missing. "
                "Was that file removed? Choose another --out, or add --overwrite to remove the work and begin anew.",
                code="no-identity",
            )
        if changes := self._changes(identity):
            raise ConfigError(
                f"{self.identity_path}: this output was begun with other settings, input or model: {changes}. Repeat "
                "the earlier command to finish it, choose another --out, or add --overwrite to begin anew.",
                code="other-settings",
            )

    def begin(
        self, identity: Mapping[str, Any], *, overwrite: bool, prepare: Callable[[], None] = lambda: None
    ) -> None:
        """Begin an output, or resume the output of the same run. `overwrite` removes any other.

        `prepare` writes what belongs to the identity. It is called before the identity is written.
        """
        if not overwrite:
            self.refuse_other(identity)
        with suppress(RecordError):  # an unreadable identity, to be overwritten
            if self.exists() and not self._changes(identity):
                return
        self.remove()
        prepare()
        write_atomic(self.identity_path, json_text(identity, indent=2) + "\n")

    def remove(self) -> None:
        """Remove identity, results and lines, in this order: lines without an identity are never resumed."""
        for path in (self.identity_path, *self.results):
            remove_file(path)
        for lines in self.lines:
            lines.remove()

    def _changes(self, identity: Mapping[str, Any]) -> str:
        """The values that `identity` changes, in words. Empty if there are none. Names that it lacks may differ."""
        changes = differences(read_json(self.identity_path), identity) if self.exists() else {}
        return in_words({name: pair for name, pair in changes.items() if name not in self.ignored})
