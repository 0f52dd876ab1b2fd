"""Right solutions to problems, labelled by method and wording, and how alike pairs of them are."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gar.analysis.policies import Policy
from gar.core import unit_rows
from gar.data.arithmetic import METHODS, WORDINGS, write_solution
from gar.errors import DataError
from gar.records import read_jsonl
from gar.rollouts.generate import encode_prompt
from gar.scoring import signal_means
from gar.scoring.anchors import text_likeness
from gar.spans import TokenSequence, anchor_sequence, token_pieces
from gar.types import Prompt

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIMILARITIES = {
    "gradient-activation": "gradient x activation",
    "gradient": "gradient alone",
    "hidden": "hidden state",
    "text": "text",
}
"""Name in the data -> name in figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledSolution:
    """A right solution, the method it follows, and its wording where that is known."""

    problem_id: str
    prompt: Prompt
    text: str
    method: str
    wording: str | None = None


def embedded_solutions(policy: Policy, num_problems: int) -> list[LabelledSolution]:
    """Each problem of the embedded task, solved by each method in each wording.

    Raises:
        DataError: The policy's problems are of another task.
    """
    return [
        LabelledSolution(
            problem_id=problem.id, prompt=problem.prompt, text=write_solution(problem, method, wording), method=method,
            wording=wording,
        )
        for problem in policy.problems[:num_problems]
        for method, wording in itertools.product(METHODS, WORDINGS)
    ]  # fmt: skip


def read_solutions(path: str | Path) -> list[LabelledSolution]:
    """Solutions from a JSONL file with `prompt`, `solution`, `method`, and where known `wording` and `id`.

    Rows with the same id are solutions to one problem; without ids, rows with the same prompt.

    Raises:
        RecordError: The file cannot be read.
        DataError: A row lacks a column; names the line.
    """
    solutions = []
    for number, row in enumerate(read_jsonl(path), start=1):
        missing = [name for name in ("prompt", "solution", "method") if not row.get(name)]
        if missing:
            raise DataError(
                f"{path}:{number}: no '{missing[0]}'. Expected prompt, solution and method, and where known wording "
                "and id; right solutions only."
            )
        solutions.append(
            LabelledSolution(
                problem_id=str(row.get("id") or row["prompt"]), prompt=row["prompt"], text=row["solution"],
                method=str(row["method"]), wording=row.get("wording"),
            )
        )  # fmt: skip
    return solutions


def solution_sequences(policy: Policy, solutions: Sequence[LabelledSolution]) -> list[TokenSequence]:
    """The solutions as the policy reads them."""
    pieces = token_pieces(policy.tokenizer)
    rule = policy.span_rule
    return [
        anchor_sequence(encode_prompt(policy.tokenizer, s.prompt), s.text, policy.tokenizer, rule, pieces=pieces)
        for s in solutions
    ]


def solution_pairs(solutions: Sequence[LabelledSolution], expert: str | None) -> list[tuple[int, int]]:
    """Indices of pairs of different solutions to one problem; with an expert, one of each pair by that method."""
    by_problem: dict[str, list[int]] = {}
    for i, solution in enumerate(solutions):
        by_problem.setdefault(solution.problem_id, []).append(i)
    return [
        (i, j)
        for members in by_problem.values()
        for i, j in itertools.combinations(members, 2)
        if expert in (None, solutions[i].method, solutions[j].method) and solutions[i].text != solutions[j].text
    ]


def similarities(policy: Policy, sequences: Sequence[TokenSequence], left: Ints, right: Ints) -> dict[str, Floats]:
    """Each similarity of each pair; NaN where one has no usable vector."""
    pieces = token_pieces(policy.tokenizer)
    likeness = [text_likeness(sequences[i], sequences[j], pieces) for i, j in zip(left, right, strict=True)]
    return {kind: _cosines(policy, sequences, left, right, kind) for kind in SIMILARITIES if kind != "text"} | {
        "text": np.array(likeness)
    }


def _cosines(policy: Policy, sequences: Sequence[TokenSequence], left: Ints, right: Ints, kind: str) -> Floats:
    settings = policy.signal.model_copy(update={"kind": kind})
    vectors = unit_rows(signal_means(policy.parts, sequences, settings)).double().cpu().numpy()
    usable = (vectors != 0).any(-1)
    return np.where(usable[left] & usable[right], (vectors[left] * vectors[right]).sum(-1), np.nan)
