"""What `gar eval` leaves of one model on one benchmark.

    evals/MODEL/BENCHMARK/
      set.json          what was asked of which model, and how: written first, and never changed
      problems.jsonl    the problems with their prompts
      samples.jsonl     one line per sample: text, tokens, stop reason, seed; append-only
      verdicts.jsonl    one line per sample: status, answer, vote; append-only
      metrics.json      the numbers, and the counts of each problem

The append-only files may be killed at any moment: a line without its line end does not count, and the next writer cuts
it off.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.evaluation.lines import MetricsFile, ProblemLine, SampleLine, SetFile, VerdictLine
from gar.records.checked import checked
from gar.records.dotted import differences
from gar.records.files import append_line, io_error, json_text, read_json, whole_objects, write_atomic
from gar.records.lock import only_writer

Line = dict[str, Any]

# Where the problems and the model came from; what they are is told by their hashes.
_INDIFFERENT = ("benchmark.source", "benchmark.revision", "benchmark.notes", "model.name", "model.revision")


@dataclass(frozen=True, slots=True)
class EvaluationFolder:
    """Reads and writes one such folder.

    Attributes:
        path: The folder. It need not exist.

    Raises:
        RecordError: From any method, when the system refuses or a file is not what it should be.
    """

    path: Path

    @property
    def set_path(self) -> Path:
        """`set.json`."""
        return self.path / "set.json"

    @property
    def problems_path(self) -> Path:
        """`problems.jsonl`."""
        return self.path / "problems.jsonl"

    @property
    def samples_path(self) -> Path:
        """`samples.jsonl`."""
        return self.path / "samples.jsonl"

    @property
    def verdicts_path(self) -> Path:
        """`verdicts.jsonl`."""
        return self.path / "verdicts.jsonl"

    @property
    def metrics_path(self) -> Path:
        """`metrics.json`."""
        return self.path / "metrics.json"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep a second writer out; makes the folder.

        Raises:
            LockedError: Another process writes there.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise io_error(self.path, "made", error) from error
        with only_writer(self.path):
            yield

    def refuse_other(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on with what was begun otherwise.

        Args:
            identity: Of this evaluation, or as much of it as is known yet.

        Raises:
            ConfigError: The folder is another one's; says in what they differ.
        """
        if self.set_path.exists() and (changes := _changes(read_json(self.set_path), identity)):
            raise ConfigError(
                f"{self.path} holds an evaluation with other settings: {'; '.join(changes)}. Choose another --out, or "
                "add --overwrite to begin anew."
            )

    def begin(self, identity: Mapping[str, Any], problems: Iterable[Line], *, overwrite: bool) -> None:
        """Begin, or go on where the same evaluation stopped.

        Raises:
            ConfigError: As `refuse_other`, unless `overwrite`.
        """
        if overwrite and self.set_path.exists() and _changes(read_json(self.set_path), identity):
            for path in (self.set_path, self.metrics_path, self.verdicts_path, self.samples_path):
                path.unlink(missing_ok=True)
        self.refuse_other(identity)
        if not self.set_path.exists():
            write_atomic(self.problems_path, "".join(json_text(problem) + "\n" for problem in problems))
            write_atomic(self.set_path, json_text(identity, indent=2) + "\n")

    def identity(self) -> dict[str, Any]:
        """What `set.json` says.

        Raises:
            RecordError: There is none.
        """
        if not self.set_path.is_file():
            raise RecordError(
                f"{self.path}: no set.json here, so this is no evaluation. `gar eval generate` writes one folder per "
                "benchmark, by default evals/MODEL/BENCHMARK."
            )
        values = read_json(self.set_path)
        checked(SetFile, values, str(self.set_path))
        return values

    def metrics(self) -> dict[str, Any]:
        """What `metrics.json` says.

        Raises:
            RecordError: There is none, or it is something else.
        """
        values = read_json(self.metrics_path)
        metrics = checked(MetricsFile, values, str(self.metrics_path))
        for problem in metrics.problems:
            if problem.num_correct + sum(problem.wrong_votes) > metrics.num_samples:
                raise RecordError(f"{self.metrics_path}: problem {problem.id!r} has more votes than samples.")
        return values

    def problems(self) -> list[Line]:
        """The problems: id, prompt, answer, number of choices, category."""
        problems = list(whole_objects(self.problems_path, ProblemLine))
        if len({problem["id"] for problem in problems}) < len(problems):
            raise RecordError(f"{self.problems_path}: a problem is there twice. Was the file changed by hand?")
        return problems

    def samples(self) -> Iterator[Line]:
        """All whole lines of `samples.jsonl`, one after the other."""
        return whole_objects(self.samples_path, SampleLine)

    def verdicts(self) -> Iterator[Line]:
        """All whole lines of `verdicts.jsonl`, one after the other."""
        return whole_objects(self.verdicts_path, VerdictLine)


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Add whole lines to an append-only file.

    Raises:
        RecordError: The system refuses. What was there is intact.
    """
    texts = [json_text(line).encode() for line in lines]
    if texts:
        append_line(path, b"\n".join(texts))


def evaluation_folders(path: Path) -> list[EvaluationFolder]:
    """The evaluations in a folder: itself, or one per benchmark inside it.

    Raises:
        RecordError: There is none.
    """
    if (path / "set.json").is_file():
        return [EvaluationFolder(path)]
    inside = sorted(each.parent for each in path.glob("*/set.json")) if path.is_dir() else []
    if not inside:
        raise RecordError(
            f"{path}: {'no evaluation in this folder' if path.is_dir() else 'no such folder'}. Expected one that "
            "`gar eval generate` wrote, by default evals/MODEL, or evals/MODEL/BENCHMARK."
        )
    return [EvaluationFolder(each) for each in inside]


def _changes(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} was {before!r}, now {now!r}"
        for name, (before, now) in differences(there, here).items()
        if name not in _INDIFFERENT
    ]
