"""Output that resumes after a kill: the identity of its run, and append-only lines of finished work.

The identity holds everything that the output depends on, as nested mappings: input, model, settings.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records.dotted import changes_in_words, differences
from gar.records.files import json_object, json_text, regular, remove_file, system_errors
from gar.records.manifest import Manifest

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FinishedLines:
    """A JSONL file with a line for each finished piece of work, as its folder's manifest lists it.

    If anything listed has changed, that is an error. Lines that a killed writer did not list do not count.
    """

    manifest: Manifest
    name: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.manifest.folder / self.name

    def __iter__(self) -> Iterator[Line]:
        """The lines, in bounded memory. A `RecordError` if the file is not what was written."""
        for number, text in enumerate(self.texts(), start=1):
            yield json_object(text, f"{self.path}:{number}")

    def texts(self) -> Iterator[bytes]:
        """The lines as they are in the file."""
        facts = self.manifest.entries.get(self.name)
        if facts is None:
            return
        self.manifest.check(self.name, again=True)
        with system_errors(self.path, "read"), regular(self.path).open("rb") as file:
            left = facts.size
            for line in file:
                left -= len(line)
                if left < 0:  # not listed
                    return
                yield line

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines: all of them, or none. Earlier lines are intact whatever happens."""
        if content := "".join(json_text(line) + "\n" for line in lines):
            self.manifest.append(self.name, content.encode())


@dataclass(frozen=True, slots=True)
class ResumableOutput:
    """Files of finished lines, and beside them a file with the identity of the run that writes them.

    All are listed in `manifest`. `results` are files made from the lines, removed with them when another run begins.
    `ignored` are names of the identity that may differ when the output is resumed.
    """

    manifest: Manifest
    identity: str
    lines: FinishedLines
    results: Sequence[str] = ()
    ignored: Collection[str] = ()

    @property
    def identity_path(self) -> Path:
        """The file of the identity."""
        return self.manifest.folder / self.identity

    def exists(self) -> bool:
        """Whether an output was begun, and is not finished."""
        return self.identity in self.manifest.entries and self.identity_path.exists()

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Raise a `ConfigError` if the output is another run's, as far as the identity of this one is known yet."""
        stray = [path for path in (self.lines.path, self.identity_path) if path.exists()]
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
        """Begin an output, or resume the output of the same run. `overwrite` removes any other.

        `prepare` writes what belongs to the identity. It is called before the identity is written.
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
        for name in (self.identity, *self.results, self.lines.name, self.manifest.path.name):
            remove_file(self.manifest.folder / name)

    def finish(self, *paths: Path) -> None:
        """List these final files in place of identity and lines, and remove those."""
        own = (self.identity, self.lines.name)
        self.manifest.add(*paths, gone=own)
        for name in own:
            remove_file(self.manifest.folder / name)

    def _changes(self, identity: Mapping[str, Any]) -> str:
        """The values that `identity` changes, in words. Empty if there are none. Names that it lacks may differ."""
        if not self.exists():
            return ""
        begun = json_object(self.manifest.read(self.identity), str(self.identity_path))
        changes = differences(begun, identity)
        return changes_in_words({name: pair for name, pair in changes.items() if name not in self.ignored})
