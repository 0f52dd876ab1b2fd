"""From verdicts to the numbers of one evaluation: `metrics.json`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gar.errors import RecordError
from gar.evaluation.evaluate import mean
from gar.evaluation.folder import EvaluationFolder, Line
from gar.evaluation.majority import majority_at_k
from gar.evaluation.pass_at_k import pass_at_k
from gar.evaluation.statistics import bootstrap_interval
from gar.records.files import json_text, write_atomic
from gar.types import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemCounts:
    """How the samples of one problem fell out.

    Attributes:
        id: The problem's.
        category: Its category, "" where the set has none.
        num_samples: Samples of it.
        num_correct: Right, and in the format that was asked for. Each of them is a vote for the right answer.
        wrong_votes: Votes for each other answer, most frequent first.

    Example: ProblemCounts(id="7", category="", num_samples=4, num_correct=1, wrong_votes=(2,))
    """

    id: str
    category: str
    num_samples: int
    num_correct: int
    wrong_votes: tuple[int, ...]

    def pass_at(self, k: int) -> float:
        """Unbiased pass@k."""
        return pass_at_k(self.num_samples, self.num_correct, k)

    def majority_at(self, k: int) -> float:
        """maj@k over all draws of k samples, ties broken evenly."""
        abstained = self.num_samples - self.num_correct - sum(self.wrong_votes)
        return majority_at_k(self.num_correct, self.wrong_votes, abstained, k)


def default_ks(num_samples: int) -> tuple[int, ...]:
    """Powers of 2 up to the number of samples, and that number."""
    powers = [2**exponent for exponent in range(num_samples.bit_length())]
    return tuple(dict.fromkeys([*powers, num_samples]))


def write_metrics(folder: EvaluationFolder, ks: Sequence[int]) -> dict[str, Any]:
    """Write `metrics.json` from the verdicts, and return what it holds.

    Raises:
        RecordError: A file cannot be read or written.
    """
    identity = folder.identity()
    counts, totals = _count(folder)
    format = next(folder.verdicts())["format"]
    metrics: dict[str, Any] = {
        "benchmark": identity["benchmark"]["name"],
        "model": identity["model"]["name"],
        "prompt": identity["prompt"]["form"],
        "format": format,
        "num_problems": len(counts),
        "num_samples": identity["sampling"]["num_samples"],
        "pass_at": {str(k): mean(each.pass_at(k) for each in counts) for k in ks},
        "majority_at": {str(k): mean(each.majority_at(k) for each in counts) for k in ks},
        "interval_95": {str(k): _interval([each.pass_at(k) for each in counts]) for k in ks},
        **totals,
        "categories": _categories(counts),
        "notes": identity["benchmark"]["notes"],
        "problems": [
            {
                "id": each.id,
                "category": each.category,
                "num_correct": each.num_correct,
                "wrong_votes": list(each.wrong_votes),
            }
            for each in counts
        ],
    }
    write_atomic(folder.metrics_path, json_text(metrics, indent=1) + "\n")
    return metrics


def read_counts(metrics: Mapping[str, Any]) -> list[ProblemCounts]:
    """The counts of every problem in a `metrics.json`, in its order."""
    return [
        ProblemCounts(
            id=each["id"],
            category=each["category"],
            num_samples=metrics["num_samples"],
            num_correct=each["num_correct"],
            wrong_votes=tuple(each["wrong_votes"]),
        )
        for each in metrics["problems"]
    ]


def _count(folder: EvaluationFolder) -> tuple[list[ProblemCounts], dict[str, Any]]:
    """One pass over the verdicts: counts by problem, in the order of the problems; and means over all samples."""
    by_problem: dict[str, list[Line]] = {problem["id"]: [] for problem in folder.problems()}
    statuses: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    for line in folder.verdicts():
        key = line["problem"], line["sample"]
        if key in seen or line["problem"] not in by_problem:
            raise RecordError(
                f"{folder.verdicts_path}: sample {key[1]} of problem {key[0]!r} is there twice, or of no problem of "
                f"{folder.problems_path.name}. Delete it to grade anew."
            )
        seen.add(key)
        by_problem[line["problem"]].append(line)
        statuses[line["status"]] += 1
    counts = []
    for problem in folder.problems():
        lines = by_problem[problem["id"]]
        wrong = Counter(line["vote"] for line in lines if line["vote"] is not None and not line["correct"])
        counts.append(
            ProblemCounts(
                id=problem["id"],
                category=problem["category"],
                num_samples=len(lines),
                num_correct=sum(line["correct"] for line in lines),
                wrong_votes=tuple(sorted(wrong.values(), reverse=True)),
            )
        )
    lines = [line for group in by_problem.values() for line in group]
    totals = {
        "mean_response_tokens": mean(line["num_tokens"] for line in lines),
        "truncated_fraction": mean(line["truncated"] for line in lines),
        "well_formatted_fraction": mean(line["well_formatted"] for line in lines),
        "verified_fraction": mean(line["verified"] for line in lines),
        "status_counts": {status.value: statuses[status.value] for status in Status},
    }
    return counts, totals


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Where the mean over problems may lie if others of the kind had been asked. None without spread to tell it by."""
    return None if len(set(values)) == 1 else bootstrap_interval(np.array([values]))


def _categories(counts: Sequence[ProblemCounts]) -> dict[str, Any]:
    """pass@1 by category, where there are several. The headline number is the mean over problems, not over these."""
    groups: dict[str, list[ProblemCounts]] = {}
    for each in counts:
        groups.setdefault(each.category, []).append(each)
    if len(groups) < 2:
        return {}
    return {
        name: {"num_problems": len(group), "pass_at_1": mean(each.pass_at(1) for each in group)}
        for name, group in sorted(groups.items())
    }
