"""The folder that `gar eval` writes for one model and one benchmark. `gar.records.evaluations` lists its files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from gar.errors import RecordError
from gar.records.evaluations import NUMBERS, PROBLEMS, SAMPLES, SET, read_set
from gar.records.files import canonical_hash, io_error, json_text, whole_objects, write_atomic, write_parquet
from gar.records.lock import writer_lock
from gar.records.manifest import MANIFEST, Manifest
from gar.records.resumable import FinishedLines, Line, ResumableOutput
from gar.records.rollouts import SAMPLE_SCHEMA, SampleRecord, record_table

# The origin of problems and model may differ: hashes identify their content.
_INDIFFERENT = ("benchmark.source", "benchmark.revision", "benchmark.notes", "model.path", "model.revision")


class EvaluationFolder:
    """Reads and writes one such folder, which need not exist. What it reads is checked against the folder's manifest.

    Raises:
        RecordError: From any method, when the system reports an error or a file is not what was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.responses = FinishedLines(path / "responses.jsonl", ResponseLine, path / SET)
        self._problems_path = path / PROBLEMS
        self.metrics_path = path / NUMBERS
        results = (path / MANIFEST, self.metrics_path, path / SAMPLES)
        self.output = ResumableOutput(path / SET, (self.responses,), results=results, ignored=_INDIFFERENT)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder, which is created if need be. A `LockedError` says that another process writes there."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise io_error(self.path, "made", error) from error
        with writer_lock(self.path):
            yield

    def manifest(self) -> Manifest:
        """The manifest, for files of this identity."""
        return read_set(self.path)[1]

    def begin(self, identity: Mapping[str, Any], problems: Iterable[Line], *, overwrite: bool) -> None:
        """Begin, or resume the same evaluation. `overwrite` removes any earlier one. See `ResumableOutput.begin`."""

        def prepare() -> None:
            write_atomic(self._problems_path, "".join(json_text(problem) + "\n" for problem in problems))
            Manifest(self.path, [canonical_hash(identity)]).add(self._problems_path)

        if overwrite:
            self.output.remove()
        self.output.begin(identity, overwrite=overwrite, prepare=prepare)

    def finish(self) -> None:
        """List the responses, once all are there. If they were listed before, check them."""
        manifest = self.manifest()
        if self.responses.path.name in manifest.entries:
            manifest.check(self.responses.path)
        else:
            manifest.add(self.responses.path)

    def write_result(self, samples: Sequence[SampleRecord], metrics: Mapping[str, Any]) -> None:
        """Write every sample with its verdict, and the numbers, in place of earlier ones."""
        paths = self.path / SAMPLES, self.metrics_path
        write_parquet(paths[0], record_table(samples, SAMPLE_SCHEMA))
        write_atomic(paths[1], json_text(metrics, indent=1) + "\n")
        self.manifest().add(*paths)

    def identity(self) -> dict[str, Any]:
        """The content of `set.json`."""
        return read_set(self.path)[0]

    def problems(self) -> list[Line]:
        """The lines of `problems.jsonl`."""
        self.manifest().check(self._problems_path)
        return list(whole_objects(self._problems_path, ProblemLine))


def evaluation_folders(path: Path) -> list[EvaluationFolder]:
    """The evaluations at a path: the folder itself, or its subfolders, one per benchmark."""
    inside = [path] if _is_evaluation(path) else sorted(filter(_is_evaluation, path.glob("*")))
    if not inside:
        raise RecordError(
            f"{path}: {'no evaluation in this folder' if path.is_dir() else 'no such folder'}. Expected one that "
            "`gar eval generate` wrote, by default evals/MODEL, or evals/MODEL/BENCHMARK."
        )
    return [EvaluationFolder(folder) for folder in inside]


def _is_evaluation(path: Path) -> bool:
    return any((path / name).is_file() for name in (SET, PROBLEMS, "responses.jsonl"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemLine:
    """A line of `problems.jsonl`."""

    id: str
    prompt: Any
    answer: str
    num_choices: int
    category: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseLine:
    """A line of `responses.jsonl`."""

    problem: str
    sample: Annotated[int, Field(ge=0)]
    text: str
    tokens: Sequence[int]
    stop: Literal["length", "end"]
    seed: int
    prefilled_think: bool
