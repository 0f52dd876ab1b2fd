"""Output that resumes after a kill: the identity of the run that began it, and append-only lines of finished work.

    samples = FinishedLines(folder / "samples.jsonl", SampleLine)
    output = ResumableOutput(folder / "set.json", (samples,))
    output.begin({"model": {...}, "settings": {...}}, overwrite=False)
    done = {line["id"] for line in samples}
    samples.append(new_lines)

The identity holds everything that the output depends on, as nested mappings: input, model, settings.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records.dotted import differences, in_words
from gar.records.files import append_line, json_text, read_json, remove_file, whole_objects, write_atomic

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FinishedLines:
    """A JSONL file with a line for each finished piece of work.

    A killed writer leaves each line whole or torn. A torn line does not count, and the next `append` cuts it off.

    Attributes:
        path: The file. It need not exist.
        kind: A dataclass with the fields that each line must have. It may have others.
    """

    path: Path
    kind: type

    def __iter__(self) -> Iterator[Line]:
        """The whole lines, in bounded memory.

        Raises:
            RecordError: The file cannot be read, or a line is not of the kind. Names the line.
        """
        return whole_objects(self.path, self.kind)

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines: all of them, or none.

        Raises:
            RecordError: The system reports an error. All earlier lines are intact.
        """
        texts = [json_text(line).encode() for line in lines]
        if texts:
            append_line(self.path, b"\n".join(texts))


@dataclass(frozen=True, slots=True)
class ResumableOutput:
    """Files of finished lines, and beside them a file with the identity of the run that writes them.

    Attributes:
        identity_path: A JSON file, written when the output is begun and never changed.
        lines: Finished work, removed when another run begins.
        results: Files made from the lines, removed with them.
        ignored: Dotted names of the identity that may differ when the output is resumed.
    """

    identity_path: Path
    lines: Sequence[FinishedLines]
    results: Sequence[Path] = ()
    ignored: Collection[str] = ()

    def exists(self) -> bool:
        """Whether a run has begun."""
        return self.identity_path.exists()

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Raise an error if the output is another run's.

        Args:
            identity: Identity of this run, or as much of it as is known yet.

        Raises:
            ConfigError: The output was begun with another identity, and the error says in what they differ, or there
                are finished lines without an identity.
            RecordError: The identity cannot be read.
        """
        if stray := self._stray_lines():
            raise ConfigError(
                f"{stray}: finished work, but {self.identity_path.name} beside it, which says of what, is missing. Was "
                "it removed? Choose another --out, or add --overwrite "
                "to remove the work and begin anew."
            )
        if changes := self._changes(identity):
            raise ConfigError(
                f"{self.identity_path}: this output was begun with other settings, input or model: {changes}. Repeat "
                "the earlier command to finish it, choose another --out, or add --overwrite to begin anew."
            )

    def begin(self, identity: Mapping[str, Any], *, overwrite: bool, files: Mapping[Path, str] | None = None) -> None:
        """Begin an output, or resume the output of the same run.

        Args:
            identity: Complete identity of this run.
            overwrite: Remove an output of another run, or one that cannot be read or has no identity.
            files: Texts that belong to the identity. They are written before it, where the output begins.

        Raises:
            ConfigError: As `refuse_other`, unless `overwrite`.
            RecordError: A file cannot be read, written or removed.
        """
        if not overwrite:
            self.refuse_other(identity)
        with suppress(RecordError):  # an unreadable identity, to be overwritten
            if self.exists() and not self._changes(identity):
                return
        self.remove()
        for path, text in (files or {}).items():
            write_atomic(path, text)
        write_atomic(self.identity_path, json_text(identity, indent=2) + "\n")

    def remove(self) -> None:
        """Remove identity, results and lines, in this order: lines without an identity are never resumed.

        Raises:
            RecordError: The system reports an error.
        """
        for path in (self.identity_path, *self.results, *(lines.path for lines in self.lines)):
            remove_file(path)

    def _stray_lines(self) -> Path | None:
        """A file of finished lines, where no identity says what they belong to."""
        return None if self.exists() else next((lines.path for lines in self.lines if lines.path.exists()), None)

    def _changes(self, identity: Mapping[str, Any]) -> str:
        """The values that `identity` changes, in words. Empty if there are none. Names that it lacks may differ."""
        changes = differences(read_json(self.identity_path), identity) if self.exists() else {}
        return in_words({name: pair for name, pair in changes.items() if name not in self.ignored})
