"""The unfinished output of `gar score`: what a killed run leaves, and how the same command goes on from it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.errors import ConfigError
from gar.records.checked import checked
from gar.records.files import append_line, json_text, write_atomic
from gar.records.unfinished import differences, whole_objects

OutputRow = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _FinishedLine:
    line: int
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PartialScores:
    """A JSONL file: first the identity of the run that writes it, then one line per finished row of the input.

    The identity is what the output depends on, as nested mappings: input, model, settings. A killed writer leaves each
    line whole or torn; a torn one does not count and is cut off by the next writer.

    Attributes:
        path: The file. It need not exist.
        row_kind: What a row must hold.
    """

    path: Path
    row_kind: type

    def exists(self) -> bool:
        """Whether a run was begun and not finished."""
        return self._identity() is not None

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on with what was begun otherwise.

        Args:
            identity: Of this run, or as much of it as is known yet.

        Raises:
            ConfigError: The file is another run's; says in what they differ.
        """
        if changes := self._changes(identity):
            raise ConfigError(
                f"{self.path} is the unfinished output of another run: {'; '.join(changes)}. Repeat that run to finish "
                "it, choose another --out, or add --overwrite to begin anew."
            )

    def begin(self, identity: Mapping[str, Any], *, overwrite: bool) -> dict[int, int]:
        """Begin, or go on where the same run stopped.

        Args:
            identity: Of this run.
            overwrite: Give up what another run began.

        Returns:
            For each finished line of the input the number of its responses.

        Raises:
            ConfigError: As `refuse_other`, unless `overwrite`.
            RecordError: The file cannot be read or written.
        """
        if not overwrite:
            self.refuse_other(identity)
        if not self.exists() or self._changes(identity):
            write_atomic(self.path, json_text(identity) + "\n")
        return {line["line"]: len(line["rows"]) for line in self._finished()}

    def append(self, groups: Iterable[tuple[int, Sequence[OutputRow]]]) -> None:
        """Add what finished rows of the input gave: their line, and a row per response.

        Raises:
            RecordError: The system refuses. What was there is intact.
        """
        lines = [json_text({"line": line, "rows": rows}).encode() for line, rows in groups]
        append_line(self.path, b"\n".join(lines))

    def groups(self) -> Iterator[list[OutputRow]]:
        """The output rows of each finished row of the input, in their order."""
        for line in self._finished():
            yield line["rows"]

    def _changes(self, identity: Mapping[str, Any]) -> list[str]:
        begun = self._identity()
        if begun is None:
            return []
        return [f"{name} was {was!r}, now {now!r}" for name, (was, now) in differences(begun, identity).items()]

    def _identity(self) -> dict[str, Any] | None:
        return next(whole_objects(self.path), None)

    def _finished(self) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(whole_objects(self.path), start=1):
            if number == 1:
                continue
            place = f"{self.path}:{number}"
            for row in checked(_FinishedLine, line, place).rows:
                checked(self.row_kind, row, place)
            yield line
