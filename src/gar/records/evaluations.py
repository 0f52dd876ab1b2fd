"""Evaluation results by set, as in `evaluation/before.json` and `evaluation/after.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from gar.errors import RecordError
from gar.records.checked import checked

Rate = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemCount:
    """One problem, and how many of its samples were correct and well formatted."""

    id: str
    num_correct: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedSet:
    """Results on one evaluation set.

    Attributes:
        pass_at: pass@k by k; None where there were fewer than k samples.
        num_samples: Samples per problem.
        problems: Counts of correct samples.
        problems_hash: Hash of ids, prompts and answers; None if unknown.
    """

    pass_at: Mapping[Annotated[str, Field(pattern=r"^[0-9]+$")], Rate | None]
    num_samples: Annotated[int, Field(ge=1)]
    problems: Sequence[ProblemCount]
    problems_hash: str | None = None

    @property
    def known_rates(self) -> dict[int, float]:
        """pass@k by k, as far as it is known."""
        return {int(k): rate for k, rate in self.pass_at.items() if rate is not None}

    @property
    def num_correct(self) -> dict[str, int]:
        """Correct samples by problem."""
        return {problem.id: problem.num_correct for problem in self.problems}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evaluation:
    sets: Mapping[str, EvaluatedSet]


def evaluated_sets(values: Any, place: str) -> dict[str, EvaluatedSet]:
    """The sets of one evaluation, by name.

    Raises:
        RecordError: The values are something else, or a problem has more correct samples than samples.
    """
    sets = dict(checked(_Evaluation, values, place).sets)
    for name, part in sets.items():
        most = max((problem.num_correct for problem in part.problems), default=0)
        if most > part.num_samples:
            raise RecordError(f"{place}: sets.{name}: {most} right of {part.num_samples} samples of one problem.")
    return sets
