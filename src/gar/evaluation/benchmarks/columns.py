"""How a row of a benchmark, with its published columns, becomes a problem."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gar.errors import DataError
from gar.records.files import canonical_hash
from gar.types import Prompt

LETTERS = "ABCDEFGHIJ"
"""Names of the choices, in their order."""
PERMUTATION_SEED = 0
"""Seed of the order of GPQA's choices: part of every prompt hash."""

BenchmarkRow = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkProblem:
    """One problem of a benchmark, before it is made into a prompt.

    `choices` are the texts behind the letters of a multiple-choice problem, whose `answer` is a letter. `working` is a
    worked solution, for problems that are shown as examples.

    Example: BenchmarkProblem(id="17", question="Which gas ...?", answer="B", choices=("argon", "neon"))
    """

    id: str
    question: Prompt
    answer: str
    choices: tuple[str, ...] = ()
    category: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns that a benchmark is published with.

    Attributes:
        required: Columns that must be there.
        question: Column of the question.
        answer: Column of the answer.
        id: Column of the id. Where it is not required, a hash of the question stands in for an empty one.
        category: Column of the category.
        finish: Completes a problem from its row; the third argument is the row's place, for messages.
    """

    required: tuple[str, ...]
    question: str
    answer: str
    id: str = ""
    category: str = ""
    finish: Callable[[BenchmarkProblem, BenchmarkRow, str], BenchmarkProblem] = lambda problem, row, place: problem


def read_row(row: BenchmarkRow, columns: Columns, place: str) -> BenchmarkProblem:
    """Read one row as a problem.

    Raises:
        DataError: A column is missing, or a value is empty or of another type; names the place.
    """
    missing = [name for name in columns.required if name not in row]
    if missing:
        raise DataError(
            f"{place}: no column {', '.join(map(repr, missing))}; found {', '.join(map(repr, row))}. Expected the "
            f"published columns {', '.join(columns.required)}. Is it a file of another benchmark?"
        )
    question = _text(row, columns.question, place)
    default_id = "" if columns.id in columns.required else canonical_hash(question)[:12]
    problem = BenchmarkProblem(
        id=_text(row, columns.id, place) or default_id,
        question=question,
        answer=_text(row, columns.answer, place),
        category=_text(row, columns.category, place, several=True),
    )
    problem = columns.finish(problem, row, place)
    for name in ("id", "question", "answer"):
        if not getattr(problem, name):
            raise DataError(f"{place}: the {name} is empty.")
    return problem


def problems_hash(problems: Sequence[BenchmarkProblem]) -> str:
    """SHA-256 of ids, questions, choices and answers: the same for a file and for the Hub."""
    return canonical_hash(
        [[problem.id, problem.question, list(problem.choices), problem.answer] for problem in problems]
    )


def _text(row: BenchmarkRow, name: str, place: str, *, several: bool = False) -> str:
    """A value as stripped text, "" where there is none. Numbers are accepted, since many answers are stored as such."""
    value = row.get(name)
    if value is None:
        return ""
    if several and isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{place}: column {name!r} must be text or a number, got {type(value).__name__}.")
    return str(value).strip()


def _shuffle_choices(problem: BenchmarkProblem, row: BenchmarkRow, place: str) -> BenchmarkProblem:
    """GPQA: the choices in a fixed order that depends only on the question, not on the position of its row."""
    choices = [problem.answer, *(_text(row, name, place) for name in _GPQA_WRONG)]
    order = list(range(len(choices)))
    random.Random(f"{PERMUTATION_SEED} {problem.question}").shuffle(order)
    return replace(problem, answer=LETTERS[order.index(0)], choices=tuple(choices[index] for index in order))


def _check_options(problem: BenchmarkProblem, row: BenchmarkRow, place: str) -> BenchmarkProblem:
    """MMLU-Pro: the answer is given twice, as a letter and as the index of an option."""
    options = row["options"]
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise DataError(f"{place}: column 'options' must be an array of texts, got {str(options)[:60]!r}.")
    choices = tuple(option.strip() for option in options if option != "N/A")
    answer, index = problem.answer, row["answer_index"]
    if not (isinstance(index, int) and 0 <= index < len(choices) <= len(LETTERS)) or LETTERS[index] != answer:
        raise DataError(f"{place}: answer {answer!r} is not option {index} of {len(choices)} options.")
    return replace(problem, choices=choices)


def _after_hashes(problem: BenchmarkProblem, row: BenchmarkRow, place: str) -> BenchmarkProblem:
    """GSM8K: the number after #### is the answer."""
    _, hashes, answer = problem.answer.rpartition("####")
    if not hashes:
        raise DataError(f"{place}: column 'answer' has no '#### N' at its end.")
    return replace(problem, answer=answer.strip().replace(",", ""))


_GPQA_WRONG = tuple(f"Incorrect Answer {number}" for number in (1, 2, 3))

MATHARENA = Columns(
    required=("problem_idx", "problem", "answer"),
    question="problem", answer="answer", id="problem_idx", category="problem_type",
)  # fmt: skip
IMO = Columns(
    required=("Problem ID", "Problem", "Short Answer", "Category"),
    question="Problem", answer="Short Answer", id="Problem ID", category="Category",
)  # fmt: skip
GPQA = Columns(
    required=("Question", "Correct Answer", *_GPQA_WRONG),
    question="Question", answer="Correct Answer", id="Record ID", category="High-level domain", finish=_shuffle_choices,
)  # fmt: skip
MMLU_PRO = Columns(
    required=("question_id", "question", "options", "answer", "answer_index", "category"),
    question="question", answer="answer", id="question_id", category="category", finish=_check_options,
)  # fmt: skip
MATH = Columns(
    required=("problem", "answer"), question="problem", answer="answer", id="unique_id", category="subject"
)  # fmt: skip
GSM8K = Columns(required=("question", "answer"), question="question", answer="answer", finish=_after_hashes)
