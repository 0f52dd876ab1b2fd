"""Output that resumes after a kill: append-only lines of finished work, and beside them what they depend on.

    output = ResumableOutput(folder, "set.json", "responses.jsonl")
    output.begin({"seed": 0}, overwrite=False)   # or resume, if that was begun
    output.append([{"sample": 3, "text": "7"}])  # all of these lines, or none

A run with a different identity never resumes it. A torn last line of a killed writer does not count.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records.dotted import changes_in_words, differences
from gar.records.files import (
    append_bytes,
    json_object,
    json_text,
    read_bytes,
    remove_file,
    truncate,
    whole_lines,
    write_atomic,
)

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResumableOutput:
    """A file with a line for each finished piece of work, and a file with the identity of the run that writes them.

    The identity is everything that the output depends on, as nested mappings: input, model, settings.

    Attributes:
        folder: The folder of all files.
        identity: Name of the identity's file.
        lines: Name of the file of lines.
        results: Names of files made from the lines, which are removed with them when another run begins.
        ignored: Dotted names in the identity that may differ between the runs.
    """

    folder: Path
    identity: str
    lines: str
    results: Sequence[str] = ()
    ignored: Collection[str] = ()

    @property
    def identity_path(self) -> Path:
        """The file of the identity."""
        return self.folder / self.identity

    @property
    def lines_path(self) -> Path:
        """The file of the lines."""
        return self.folder / self.lines

    def finished(self) -> Iterator[Line]:
        """The lines so far, in bounded memory. A `RecordError` if one is no JSON object."""
        for number, text in enumerate(whole_lines(self.lines_path), start=1):
            yield json_object(text, f"{self.lines_path}:{number}")

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines: all of them, or none. Earlier lines are intact whatever happens."""
        if content := "".join(json_text(line) + "\n" for line in lines):
            append_bytes(self.lines_path, content.encode())

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Raise a `ConfigError` if the output is another run's, as far as the identity of this one is known yet."""
        if self.lines_path.exists() and not self.identity_path.exists():
            raise ConfigError(
                f"{self.lines_path}: unfinished work, but {self.identity} is missing. Was a file removed? Choose "
                "another --out, or add --overwrite to begin anew.",
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
        """Begin an output, or resume the output of the same run. `overwrite` removes the output of any other.

        `prepare` writes further files that the identity describes, before the identity is written.
        """
        if not overwrite:
            self.refuse_other(identity)
        with suppress(RecordError):  # an unreadable identity, to be overwritten
            if self.identity_path.exists() and not self._changes(identity):
                if self.lines_path.exists():
                    truncate(self.lines_path, sum(map(len, whole_lines(self.lines_path))))
                return
        self.remove()
        prepare()
        write_atomic(self.identity_path, json_text(identity, indent=2) + "\n")

    def remove(self) -> None:
        """Remove identity, results and lines, in this order: lines without an identity are never resumed."""
        for name in (self.identity, *self.results, self.lines):
            remove_file(self.folder / name)

    def _changes(self, identity: Mapping[str, Any]) -> str:
        """What `identity` changes, in words. "" if nothing. What it does not have yet is not compared."""
        if not self.identity_path.exists():
            return ""
        there = json_object(read_bytes(self.identity_path), str(self.identity_path))
        changes = differences(there, identity)
        return changes_in_words({name: pair for name, pair in changes.items() if name not in self.ignored})
