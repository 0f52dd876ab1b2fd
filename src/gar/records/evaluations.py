"""Evaluation results by set, as in a run's `evaluation/before.json` and `after.json`, and in `metrics.json`.

`gar eval` writes a folder for one model and one benchmark:

    evals/MODEL/BENCHMARK/
      set.json          benchmark, prompt, model and sampling: written first, and never changed
      problems.jsonl    the problems with their prompts
      responses.jsonl   a line for each response: text, tokens, stop reason, seed (append-only)
      samples.parquet   every response with its verdict, see `gar.records.samples`
      metrics.json      the numbers, and the counts of each problem
      manifest.jsonl    the finished files, with size and checksum, see `gar.records.manifest`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from gar.records.files import checked, json_object
from gar.records.manifest import Manifest
from gar.types import ResponseFormat

SET, PROBLEMS, NUMBERS, SAMPLES = "set.json", "problems.jsonl", "metrics.json", "samples.parquet"

_Count = Annotated[int, Field(ge=0)]
_Rate = Annotated[float, Field(ge=0, le=1)]


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
    """Results on one evaluation set: pass@k by k (None for fewer than k samples), and the counts of correct samples.

    `problems_hash` covers ids, prompts and answers, and `format` is how responses were read. None if unknown.
    """

    pass_at: Mapping[Annotated[str, Field(pattern=r"^[0-9]+$")], _Rate | None]
    num_samples: Annotated[int, Field(ge=1)]
    problems: Sequence[ProblemCount]
    problems_hash: str | None = None
    format: ResponseFormat | None = None

    @property
    def known_rates(self) -> dict[int, float]:
        """pass@k by k, as far as it is known."""
        return {int(k): rate for k, rate in self.pass_at.items() if rate is not None}

    @property
    def num_correct(self) -> dict[str, int]:
        """Correct samples by problem."""
        return {problem.id: problem.num_correct for problem in self.problems}


def evaluated_sets(values: Any, place: str) -> dict[str, EvaluatedSet]:
    """The sets of one evaluation, by name. A `RecordError` if they are not what was described."""
    return checked(dict[str, EvaluatedSet], values.get("sets"), place)


def read_set(manifest: Manifest) -> dict[str, Any]:
    """The content of `set.json`."""
    return json_object(manifest.read(SET), str(manifest.folder / SET))
