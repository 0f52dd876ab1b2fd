"""Solutions labeled by method and wording: read from a file, and tokenized for a policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gar import DataError, Prompt, Reader, TokenSequence
from gar.data import encode_prompt, iter_rows
from paper.analyses.policies import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledSolution:
    """A right solution, the method it follows, and its wording where that is known."""

    problem_id: str
    prompt: Prompt
    text: str
    method: str
    wording: str | None = None


def read_solutions(path: str | Path) -> list[LabeledSolution]:
    """Solutions from a JSONL file with `prompt`, `solution`, `method`, and where known `wording` and `id`.

    Rows with the same id are solutions to one problem. Without ids, rows with the same prompt.

    Raises:
        DataError: The file cannot be read, or a row lacks a column. The message has the line.
    """
    solutions = []
    for number, row in iter_rows(str(path)):
        missing = [name for name in ("prompt", "solution", "method") if not row.get(name)]
        if missing:
            raise DataError(
                f"{path}:{number}: no '{missing[0]}'. Expected prompt, solution and method, and where known wording "
                "and id; right solutions only."
            )
        solutions.append(
            LabeledSolution(
                problem_id=str(row.get("id") or row["prompt"]), prompt=row["prompt"], text=row["solution"],
                method=str(row["method"]), wording=row.get("wording"),
            )
        )  # fmt: skip
    return solutions


def solution_sequences(policy: Policy, solutions: Sequence[LabeledSolution]) -> list[TokenSequence]:
    """The solutions as token sequences of the policy."""
    reader = Reader(policy.tokenizer, policy.span_rule)
    return [reader.anchor(encode_prompt(policy.tokenizer, s.prompt), s.text) for s in solutions]
