"""Output that resumes after a kill: append-only lines of finished work, and beside them what they depend on.

    output = ResumableOutput(Manifest(folder), "set.json", "responses.jsonl")
    output.begin({"seed": 0}, overwrite=False)   # or resume, if that was begun
    output.append([{"sample": 3, "text": "7"}])  # all of these lines, or none
    output.finish(folder / "scores.jsonl")       # in place of the lines

A run with a different identity never resumes it. Lines that a killed writer did not list do not count.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records.dotted import changes_in_words, differences
from gar.records.files import json_object, json_text, remove_file
from gar.records.manifest import Manifest

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResumableOutput:
    """A file with a line for each finished piece of work, and a file with the identity of the run that writes them.

    The identity is everything that the output depends on, as nested mappings: input, model, settings.

    Attributes:
        manifest: Lists all files of the output.
        identity: Name of the identity's file.
        lines: Name of the file of lines.
        results: Names of files made from the lines, which are removed with them when another run begins.
        ignored: Dotted names in the identity that may differ between the runs.
    """

    manifest: Manifest
    identity: str
    lines: str
    results: Sequence[str] = ()
    ignored: Collection[str] = ()

    @property
    def identity_path(self) -> Path:
        """The file of the identity."""
        return self.manifest.folder / self.identity

    @property
    def lines_path(self) -> Path:
        """The file of the lines."""
        return self.manifest.folder / self.lines

    def finished(self) -> Iterator[Line]:
        """The lines so far, in bounded memory. A `RecordError` if the file is not what was written."""
        for number, text in enumerate(self.manifest.lines(self.lines), start=1):
            yield json_object(text, f"{self.lines_path}:{number}")

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines: all of them, or none. Earlier lines are intact whatever happens."""
        if content := "".join(json_text(line) + "\n" for line in lines):
            self.manifest.append(self.lines, content.encode())

    def exists(self) -> bool:
        """Whether an output was begun, and is not finished."""
        return self.identity in self.manifest.entries and self.identity_path.exists()

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Raise a `ConfigError` if the output is another run's, as far as the identity of this one is known yet."""
        stray = [path for path in (self.lines_path, self.identity_path) if path.exists()]
        if stray and not self.exists():
            raise ConfigError(
                f"{stray[0]}: unfinished work, but {self.identity} is missing, or {self.manifest.path.name} does not "
                "list it. Was a file removed? Choose another --out, or add --overwrite to begin anew.",
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
            if self.exists() and not self._changes(identity):
                self.manifest.cut()
                return
        self.remove()
        prepare()
        self.manifest.replace(self.identity, json_text(identity, indent=2).encode() + b"\n")

    def remove(self) -> None:
        """Remove identity, results, lines and manifest, in this order: lines without an identity are never resumed."""
        for name in (self.identity, *self.results, self.lines, self.manifest.path.name):
            remove_file(self.manifest.folder / name)

    def finish(self, *paths: Path) -> None:
        """List these final files in place of identity and lines, and remove those."""
        self.manifest.add(*paths, gone=(self.identity, self.lines))
        remove_file(self.identity_path)
        remove_file(self.lines_path)

    def _changes(self, identity: Mapping[str, Any]) -> str:
        """What `identity` changes, in words. "" if nothing. What it does not have yet is not compared."""
        if not self.exists():
            return ""
        changes = differences(self.manifest.read_json(self.identity), identity)
        return changes_in_words({name: pair for name, pair in changes.items() if name not in self.ignored})
