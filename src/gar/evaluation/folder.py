"""The folder of one model and one set of problems. `gar.records.evaluations` lists its files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records.dotted import changes_in_words, differences
from gar.records.evaluations import NUMBERS, PROBLEMS, SAMPLES, SET, check_evaluation, read_set
from gar.records.files import (
    append_bytes,
    json_object,
    json_text,
    read_bytes,
    read_json,
    remove_file,
    system_errors,
    truncate,
    whole_lines,
    write_atomic,
    write_parquet,
)
from gar.records.lock import writer_lock
from gar.records.rollouts import SAMPLE_SCHEMA, SampleRecord, record_table
from gar.records.run_folder import RUN
from gar.records.sums import SUMS, check_sum, file_sum, files_below, read_sums, write_sums
from gar.response import Response
from gar.types import Problem

# The origin of problems and model may differ: hashes identify their content.
_INDIFFERENT = ("benchmark.source", "benchmark.notes", "model.path", "model.revision")
_RESPONSES = "responses.jsonl"
_RESULTS = (NUMBERS, SAMPLES)
Line = dict[str, Any]
"""A line of `responses.jsonl`."""


@dataclass(frozen=True, slots=True)
class EvaluationFolder:
    """Reads and writes one such folder, which need not exist. What has checksums is compared with them.

    `set.json` lists what the responses depend on. A kill loses no response, and another evaluation never adds to them.

    Raises:
        RecordError: From any method, when the system reports an error or a file is not what was written.
    """

    path: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if it does not exist, and lock it. A `LockedError` if another process writes there."""
        with system_errors(self.path, "made"):
            self.path.mkdir(parents=True, exist_ok=True)
        with writer_lock(self.path):
            yield

    def begin(self, identity: Mapping[str, Any], problems: Sequence[Problem], *, overwrite: bool) -> None:
        """Begin an evaluation, or resume the same one. `overwrite` removes any earlier one. Raises as `check_same`."""
        if overwrite:
            self.remove()
        self._check_sampled()
        self.check_same(identity)
        responses = self.path / _RESPONSES
        if (self.path / SET).exists():
            if responses.exists():  # without the torn line of a killed writer
                truncate(responses, sum(map(len, whole_lines(responses))))
            return
        self.remove()  # results without responses
        names = ("id", "prompt", "answer", "question")
        lines = [{name: getattr(each, name) for name in names} for each in problems]
        write_atomic(self.path / PROBLEMS, "".join(json_text(line) + "\n" for line in lines))
        write_atomic(self.path / SET, json_text(identity, indent=2) + "\n")

    def check_same(self, identity: Mapping[str, Any]) -> None:
        """Raise a `ConfigError` if the folder holds another evaluation, as far as `identity` is known yet."""
        advice = "choose another --out, or add --overwrite to begin anew."
        if not (self.path / SET).exists():
            if (self.path / _RESPONSES).exists():
                text = f"{self.path / _RESPONSES}: unfinished work, but {SET} is missing. Was a file removed? {advice}"
                raise ConfigError(text, code="no-identity")
            return
        changes = differences(read_json(self.path / SET), identity)
        if changed := changes_in_words({name: pair for name, pair in changes.items() if name not in _INDIFFERENT}):
            raise ConfigError(
                f"{self.path / SET}: this output was begun with other settings, input or model: {changed}. Repeat the "
                f"earlier command to finish it, {advice}",
                code="other-settings",
            )

    def remove(self) -> None:
        """Remove everything, `set.json` first: responses without it are never resumed."""
        for name in (SET, SUMS, *_RESULTS, _RESPONSES):
            remove_file(self.path / name)

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
        self.add_lines(
            response_line(problem.id, number, response, seed=seed)
            for problem, group in zip(problems, groups, strict=True)
            for number, response in enumerate(group)
        )

    def add_lines(self, lines: Iterable[Line]) -> None:
        """Add lines to the responses: all of them, or none. Earlier ones are intact whatever happens."""
        if content := "".join(json_text(line) + "\n" for line in lines):
            append_bytes(self.path / _RESPONSES, content.encode())

    def lines(self) -> Iterator[Line]:
        """The lines of the responses so far, in bounded memory. A `RecordError` if one is no JSON object."""
        for number, text in enumerate(whole_lines(self.path / _RESPONSES), start=1):
            yield json_object(text, f"{self.path / _RESPONSES}:{number}")

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
        found = {(line["problem"], line["sample"]): line for line in self.lines()}
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
