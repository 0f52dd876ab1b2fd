"""The folder of one model and one set of problems. `gar.records.evaluations` lists its files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records.evaluations import NUMBERS, PROBLEMS, SAMPLES, SET, check_evaluation, read_set
from gar.records.files import json_object, json_text, read_bytes, system_errors, write_atomic, write_parquet
from gar.records.lock import writer_lock
from gar.records.resumable import Line, ResumableOutput
from gar.records.rollouts import SAMPLE_SCHEMA, SampleRecord, record_table
from gar.records.run_folder import RUN
from gar.records.sums import SUMS, check_sum, file_sum, files_below, read_sums, write_sums
from gar.response import Response
from gar.types import Problem

# The origin of problems and model may differ: hashes identify their content.
_INDIFFERENT = ("benchmark.source", "benchmark.notes", "model.path", "model.revision")
_RESPONSES = "responses.jsonl"
_RESULTS = (NUMBERS, SAMPLES)


class EvaluationFolder:
    """Reads and writes one such folder, which need not exist. What has checksums is compared with them.

    Raises:
        RecordError: From any method, when the system reports an error or a file is not what was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.output = ResumableOutput(path, SET, _RESPONSES, (SUMS, *_RESULTS), ignored=_INDIFFERENT)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Create the folder if it does not exist, and lock it. A `LockedError` if another process writes there."""
        with system_errors(self.path, "made"):
            self.path.mkdir(parents=True, exist_ok=True)
        with writer_lock(self.path):
            yield

    def begin(self, identity: Mapping[str, Any], problems: Sequence[Problem], *, overwrite: bool) -> None:
        """Begin, or resume the same evaluation. `overwrite` removes any earlier one. See `ResumableOutput.begin`."""

        def prepare() -> None:
            names = ("id", "prompt", "answer", "question")
            lines = [{name: getattr(each, name) for name in names} for each in problems]
            write_atomic(self.path / PROBLEMS, "".join(json_text(line) + "\n" for line in lines))

        if overwrite:
            self.output.remove()
        self._check_sampled()
        self.output.begin(identity, overwrite=overwrite, prepare=prepare)

    def refuse_run(self) -> None:
        """Raise a `ConfigError` if the folder belongs to a run, whose checksums list it."""
        run = (self.path / "../../..").resolve()
        if (run / RUN).exists():
            raise ConfigError(f"{self.path}: belongs to the run {run}, whose files do not change. Name a copy of it.")

    def is_complete(self, identity: Mapping[str, Any]) -> bool:
        """Whether it holds this evaluation with its results. A `RecordError` if one of its files was changed."""
        return NUMBERS in read_sums(self.path) and bool(check_evaluation(self.path)) and self.identity() == identity

    def add_responses(self, problems: Sequence[Problem], groups: Sequence[Sequence[Response]], *, seed: int) -> None:
        """Write all responses to each problem."""
        self.output.append(
            response_line(problem.id, number, response, seed=seed)
            for problem, group in zip(problems, groups, strict=True)
            for number, response in enumerate(group)
        )

    def identity(self) -> dict[str, Any]:
        """The content of `set.json`."""
        self._check_sampled()
        return read_set(self.path)

    def problems(self) -> list[Problem]:
        """The problems with their prompts."""
        lines, place = read_bytes(self.path / PROBLEMS).splitlines(), str(self.path / PROBLEMS)
        return [Problem(**json_object(line, place)) for line in lines]

    def all_responses(self, problems: Sequence[Problem], num_samples: int) -> list[list[Line]]:
        """The responses to each problem, in the order of the samples."""
        found = {(line["problem"], line["sample"]): line for line in self.output.finished()}
        if len(found) < (expected := num_samples * len(problems)):
            raise RecordError(
                f"{self.path}: {len(found):,} of {expected:,} responses are there. Run the same `gar eval run` again "
                "for the rest."
            )
        return [[found[problem.id, number] for number in range(num_samples)] for problem in problems]

    def write_result(self, samples: Sequence[SampleRecord], metrics: Mapping[str, Any]) -> None:
        """Write every sample with its verdict, the numbers, and checksums of all files, in place of earlier ones."""
        sampled = [name for name in files_below(self.path) if name not in _RESULTS]
        sums = {name: file_sum(self.path / name) for name in sampled}
        write_sums(self.path, sums)  # earlier results do not count while they are replaced
        write_parquet(self.path / SAMPLES, record_table(samples, SAMPLE_SCHEMA))
        write_atomic(self.path / NUMBERS, json_text(metrics, indent=1) + "\n")
        write_sums(self.path, sums | {name: file_sum(self.path / name) for name in _RESULTS})

    def _check_sampled(self) -> None:
        """Raise a `RecordError` if what was sampled has checksums, and is not what was written."""
        sums = read_sums(self.path)
        for name in sums.keys() - {*_RESULTS}:
            check_sum(self.path, name, sums)


def response_line(problem: str, sample: int, response: Response, **more: Any) -> Line:
    """A line of `responses.jsonl`."""
    return {
        "problem": problem,
        "sample": sample,
        "text": response.text,
        "tokens": response.ids,
        "stop": "length" if response.truncated else "end",
        "prefilled_think": response.prefilled,
        **more,
    }


def evaluation_folders(path: Path) -> list[EvaluationFolder]:
    """The evaluations at a path: the folder itself, or its subfolders, one per benchmark."""
    inside = [path] if _is_evaluation(path) else sorted(filter(_is_evaluation, path.glob("*")))
    if not inside:
        raise RecordError(
            f"{path}: {'no evaluation in this folder' if path.is_dir() else 'no such folder'}. Expected one that "
            "`gar eval run` wrote, by default evals/MODEL, or evals/MODEL/BENCHMARK."
        )
    return [EvaluationFolder(folder) for folder in inside]


def _is_evaluation(path: Path) -> bool:
    return any((path / name).is_file() for name in (SET, PROBLEMS, _RESPONSES))
