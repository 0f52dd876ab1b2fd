"""The folder that `gar eval` writes for one model and one benchmark.

    evals/MODEL/BENCHMARK/
      set.json          benchmark, prompt, model and sampling: written first, and never changed
      problems.jsonl    the problems with their prompts
      samples.jsonl     one line per sample: text, tokens, stop reason, seed, append-only
      verdicts.jsonl    one line per sample: status, answer, vote, append-only
      metrics.json      the numbers, and the counts of each problem

A sample or verdict, once written, stays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from gar.errors import RecordError
from gar.records.checked import checked
from gar.records.evaluations import Rate
from gar.records.files import io_error, json_text, read_json, whole_objects
from gar.records.lock import writer_lock
from gar.records.resumable import FinishedLines, Line, ResumableOutput
from gar.types import ResponseFormat, Status

# The origin of problems and model may differ: hashes identify their content.
_INDIFFERENT = ("benchmark.source", "benchmark.revision", "benchmark.notes", "model.name", "model.revision")

_Count = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]


class EvaluationFolder:
    """Reads and writes one such folder.

    Attributes:
        path: The folder. It need not exist.
        set_path: `set.json`.
        problems_path: `problems.jsonl`.
        metrics_path: `metrics.json`.
        samples: The lines of `samples.jsonl`.
        verdicts: The lines of `verdicts.jsonl`.
        output: Identity and lines together, to resume or reject.

    Raises:
        RecordError: From any method, when the system reports an error or a file is not what it should be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_path = path / "set.json"
        self.problems_path = path / "problems.jsonl"
        self.metrics_path = path / "metrics.json"
        self.samples = FinishedLines(path / "samples.jsonl", SampleLine)
        self.verdicts = FinishedLines(path / "verdicts.jsonl", VerdictLine)
        self.output = ResumableOutput(
            self.set_path, (self.samples, self.verdicts), results=(self.metrics_path,), ignored=_INDIFFERENT
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder, which is created if need be, against a second writer.

        Raises:
            LockedError: Another process writes there.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise io_error(self.path, "made", error) from error
        with writer_lock(self.path):
            yield

    def begin(self, identity: Mapping[str, Any], problems: Iterable[Line], *, overwrite: bool) -> None:
        """Begin, or resume the same evaluation. See `ResumableOutput.begin`.

        Raises:
            ConfigError: The folder holds another evaluation, and `overwrite` is false.
        """
        text = "".join(json_text(problem) + "\n" for problem in problems)
        self.output.begin(identity, overwrite=overwrite, files={self.problems_path: text})

    def identity(self) -> dict[str, Any]:
        """The content of `set.json`.

        Raises:
            RecordError: It does not exist, or is something else.
        """
        if not self.set_path.is_file():
            raise RecordError(
                f"{self.path}: not an evaluation: it has no set.json. `gar eval generate` writes one folder per "
                "benchmark, by default evals/MODEL/BENCHMARK."
            )
        values = read_json(self.set_path)
        checked(_Set, values, str(self.set_path))
        return values

    def metrics(self) -> "Metrics":
        """The numbers in `metrics.json`.

        Raises:
            RecordError: It does not exist, or is something else.
        """
        metrics = checked(Metrics, read_json(self.metrics_path), str(self.metrics_path))
        for problem in metrics.problems:
            if problem.num_correct + sum(problem.wrong_votes) > metrics.num_samples:
                raise RecordError(f"{self.metrics_path}: problem {problem.id!r} has more votes than samples.")
        return metrics

    def problems(self) -> list[Line]:
        """The lines of `problems.jsonl`."""
        problems = list(whole_objects(self.problems_path, ProblemLine))
        if len({problem["id"] for problem in problems}) < len(problems):
            raise RecordError(f"{self.problems_path}: a problem is there twice. Was the file changed by hand?")
        return problems


def evaluation_folders(path: Path) -> list[EvaluationFolder]:
    """The evaluations at a path: the folder itself, or its subfolders, one per benchmark.

    Raises:
        RecordError: The path holds no evaluation.
    """
    if (path / "set.json").is_file():
        return [EvaluationFolder(path)]
    inside = sorted(file.parent for file in path.glob("*/set.json")) if path.is_dir() else []
    if not inside:
        raise RecordError(
            f"{path}: {'no evaluation in this folder' if path.is_dir() else 'no such folder'}. Expected one that "
            "`gar eval generate` wrote, by default evals/MODEL, or evals/MODEL/BENCHMARK."
        )
    return [EvaluationFolder(folder) for folder in inside]


# The fields that readers of the files need. Other fields are not checked.


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemLine:
    """A line of `problems.jsonl`."""

    id: str
    prompt: Any
    answer: str
    num_choices: _Count
    category: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleLine:
    """A line of `samples.jsonl`."""

    problem: str
    sample: _Count
    text: str
    tokens: Sequence[int]
    stop: Literal["length", "end"]
    prefilled_think: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictLine:
    """A line of `verdicts.jsonl`."""

    problem: str
    sample: _Count
    status: Status
    correct: bool
    verified: bool
    well_formatted: bool
    answer: str | None
    detail: str
    vote: str | None
    num_tokens: _Count
    truncated: bool
    format: ResponseFormat


@dataclass(frozen=True, kw_only=True, slots=True)
class _Benchmark:
    name: str
    num_problems: _Count
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Prompt:
    form: str
    format: ResponseFormat


@dataclass(frozen=True, kw_only=True, slots=True)
class _Model:
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sampling:
    num_samples: _Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class _Set:
    benchmark: _Benchmark
    prompt: _Prompt
    model: _Model
    sampling: _Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemCounts:
    """Counts of the samples of one problem, in `metrics.json`.

    Attributes:
        id: The problem.
        category: Its category. "" where the set has none.
        num_correct: Samples with the right answer in the required format. Each votes for the right answer.
        wrong_votes: Votes for each other answer, most frequent first.

    Example: ProblemCounts(id="7", category="", num_correct=1, wrong_votes=(2,))
    """

    id: str
    category: str
    num_correct: _Count
    wrong_votes: Sequence[_Count]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """The parts of `metrics.json` that a comparison needs."""

    format: ResponseFormat
    num_samples: _Positive
    pass_at: Mapping[str, Rate]
    problems: Annotated[Sequence[ProblemCounts], Field(min_length=1)]
