"""The evaluation of one model on one set of problems: its folder and its numbers.

`gar eval` writes evals/MODEL/BENCHMARK, and a run `evaluation/before/SET` and `evaluation/after/SET`:

    evals/MODEL/BENCHMARK/
      set.json          benchmark, prompt, model and sampling: written first, and never changed
      problems.jsonl    the problems with their prompts
      responses.jsonl   a line for each response: text, tokens, stop reason, seed (append-only)
      samples.parquet   every response with its verdict, see `gar.records.rollouts`
      metrics.json      the numbers, and the counts of each problem
      SHA256SUMS        checksums of all of these, once they are complete
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from gar.records.dotted import leaves
from gar.records.files import checked, read_json
from gar.records.sums import check_sum, read_sums
from gar.types import ResponseFormat, Status

SET, PROBLEMS, NUMBERS, SAMPLES = "set.json", "problems.jsonl", "metrics.json", "samples.parquet"

_Count = Annotated[int, Field(ge=0)]
_Rate = Annotated[float, Field(ge=0, le=1)]
_K = Annotated[str, Field(pattern=r"^[1-9][0-9]*$")]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemCount:
    """Counts of the samples of one problem.

    `num_correct` samples have the right answer in the required format. `wrong_votes` counts the samples of each other
    answer, most frequent first. None if they were not counted.
    """

    id: str
    num_correct: _Count
    wrong_votes: Sequence[_Count] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedSet:
    """Results on one evaluation set, in training or of `gar eval`. None and empty mappings are unknown.

    Attributes:
        pass_at: pass@k by k. None for fewer than k samples.
        num_samples: Samples of each problem.
        problems: The counts of each problem.
        problems_hash: Hash of ids, prompts and answers. It can differ between sets with the same ids.
        format: How responses were read.
        majority_at: maj@k by k.
        interval_95: 95% interval of pass@k over problems. None if all values are equal.
        mean_response_tokens: Mean number of tokens of a response, end tokens included.
        truncated_fraction: Responses without an end token within the limit.
        well_formatted_fraction: Responses in the required format.
        verified_fraction: Responses with a right answer, whatever their format.
        status_counts: Responses by the verifier's status.
    """

    pass_at: Mapping[_K, _Rate | None]
    num_samples: Annotated[int, Field(ge=1)]
    problems: Sequence[ProblemCount]
    problems_hash: str | None = None
    format: ResponseFormat | None = None
    majority_at: Mapping[_K, _Rate] = field(default_factory=dict)
    interval_95: Mapping[_K, tuple[float, float] | None] = field(default_factory=dict)
    mean_response_tokens: Annotated[float, Field(ge=0)] | None = None
    truncated_fraction: _Rate | None = None
    well_formatted_fraction: _Rate | None = None
    verified_fraction: _Rate | None = None
    status_counts: Mapping[str, _Count] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {each.id: each.num_correct + sum(each.wrong_votes or ()) for each in self.problems}
        if len(counts) < len(self.problems):
            raise ValueError("two problems have one id")
        if (largest := max([*counts.values(), *self.known_rates], default=0)) > self.num_samples:
            raise ValueError(f"a problem's counts, or a k, reach {largest} of {self.num_samples} samples")

    @property
    def known_rates(self) -> dict[int, float]:
        """pass@k by k, as far as it is known."""
        return {int(k): rate for k, rate in self.pass_at.items() if rate is not None}

    @property
    def num_ungraded(self) -> int:
        """Responses whose grading ended in a timeout or an error. They count as wrong."""
        return sum(self.status_counts.get(status, 0) for status in (Status.TIMEOUT, Status.ERROR))

    @property
    def num_correct(self) -> dict[str, int]:
        """Correct samples by problem."""
        return {problem.id: problem.num_correct for problem in self.problems}


_READ: Mapping[str, Any] = {
    "benchmark.name": str, "benchmark.notes": list[str], "prompt.template": str, "prompt.format": ResponseFormat,
    "sampling.num_samples": Annotated[int, Field(ge=1)],
}  # fmt: skip # what is read of set.json


def read_set(path: Path) -> dict[str, Any]:
    """The content of `set.json` of an evaluation."""
    values = read_json(path / SET)
    there = dict(leaves(values))
    for name, kind in _READ.items():
        checked(kind, there.get(name), f"{path / SET}: {name}")
    return values


def complete_evaluations(path: Path) -> list[Path]:
    """The folders of the sets in `evaluation/before` or `evaluation/after` of a run that are complete, in its order."""
    complete = [folder for folder in path.glob("*") if NUMBERS in read_sums(folder)]
    return sorted(complete, key=lambda folder: read_set(folder).get("place", 0))


def check_evaluation(path: Path) -> dict[str, str]:
    """The checksums of a complete evaluation. A `RecordError` if it is not complete, or a file is not what it was."""
    sums = read_sums(path)
    for name in dict.fromkeys((*sums, SET, PROBLEMS, SAMPLES, NUMBERS)):
        check_sum(path, name, sums)
    return sums
