r"""The columns of every known data set, as one table, and how a row becomes a `Problem`.

The columns `id` and `source` are optional everywhere. MATH and its relatives (problem, solution) are read as
`numina-cot`. Sources: the data set cards of AI-MO/NuminaMath-CoT, AI-MO/NuminaMath-1.5 and openai/grade-school-math.
The schemas of benchmarks (`docs/evaluation.md`) are those that `gar eval` reads and nothing detects.
"""

import dataclasses
import math
import random
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from gar.data.rows import Row
from gar.errors import DataError, did_you_mean
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Anchor, Message, Problem, Prompt
from gar.verify import last_boxed
from gar.verify.choices import LETTERS

PERMUTATION_SEED = 0
"""Seed of the order of GPQA's choices: part of every prompt hash."""


def _marked_unusable(row: Row) -> str:
    """By the columns of NuminaMath-1.5 and OpenR1-Math."""
    for column in ("problem_is_valid", "solution_is_valid"):
        if column in row and row[column] not in ("Yes", True):
            return f"{column} is not Yes"
    return "question_type is proof" if row.get("question_type") == "proof" else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnSchema:
    """Which columns hold what, and how their text is read. `id` and `source` may be missing.

    Attributes:
        name: As `--column-schema` takes it.
        needs: Further columns without which the schema does not apply.
        answer_of: Extracts the answer from the column's text. A row is dropped if its answer is "".
        anchor_of: Extracts the expert solution from the column's text.
        with_choices: Adds the choices of a row. The third argument is its place.
        unusable: Why a row is unusable according to its own data set, or "". Naming columns does not switch it off.
        no_answer: The reason that is counted for a dropped row without an answer.
    """

    name: str
    prompt: str
    answer: str
    anchors: tuple[str, ...] = ()
    id: str = "id"
    source: str = "source"
    needs: tuple[str, ...] = ()
    answer_of: Callable[[str], str] = str.strip
    anchor_of: Callable[[str], str] = str.strip
    with_choices: Callable[[Problem, Row, str], Problem] = lambda problem, row, place: problem
    unusable: Callable[[Row], str] = _marked_unusable
    no_answer: str = "the answer is empty"

    @property
    def required(self) -> tuple[str, ...]:
        """Columns without which the schema does not apply."""
        return tuple(dict.fromkeys(filter(None, (self.prompt, self.answer, *self.needs))))


def _after_hashes(text: str) -> str:
    return text.rpartition("####")[2].strip().replace(",", "") if "####" in text else ""


def _before_hashes(text: str) -> str:
    # "48/2 = <<48/2=24>>24": the annotation called a calculator while the text was generated. It is not part of the
    # working, and no policy would write it.
    return re.sub(r"<<[^<>]*>>", "", text.rpartition("####")[0] if "####" in text else text).strip()


def _shuffled_choices(problem: Problem, row: Row, place: str) -> Problem:
    """GPQA: the choices in a fixed order that depends only on the question, not on the position of its row."""
    choices = [problem.answer, *(_scalar_text(row[name], place, name) for name in _GPQA_WRONG)]
    order = list(range(len(choices)))
    random.Random(f"{PERMUTATION_SEED} {str(problem.prompt).strip()}").shuffle(order)
    chosen = tuple(choices[index] for index in order)
    return dataclasses.replace(problem, answer=LETTERS[order.index(0)], choices=chosen)


def _listed_choices(problem: Problem, row: Row, place: str) -> Problem:
    """MMLU-Pro: the answer is given twice, as a letter and as the index of an option."""
    options = row["options"]
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise DataError(f"{place}: column 'options' must be an array of texts, got {str(options)[:60]!r}.")
    choices = tuple(option.strip() for option in options if option != "N/A")
    answer, index = problem.answer, row["answer_index"]
    if not (isinstance(index, int) and 0 <= index < len(choices) <= len(LETTERS)) or LETTERS[index] != answer:
        raise DataError(f"{place}: answer {answer!r} is not option {index} of {len(choices)} options.")
    return dataclasses.replace(problem, choices=choices)


_GPQA_WRONG = tuple(f"Incorrect Answer {number}" for number in (1, 2, 3))

_DETECTED = (
    # The first schema whose required columns all exist is chosen, so narrower schemas come before wider ones.
    ColumnSchema(name="gar", prompt="prompt", answer="answer", anchors=("expert_solution",)),
    ColumnSchema(
        name="numina-1.5",
        prompt="problem",
        answer="answer",
        anchors=("solution",),
        needs=("solution",),
        answer_of=lambda text: "" if text.strip().lower() in ("proof", "notfound") else text.strip(),
        no_answer="the answer is empty, 'proof' or 'notfound'",
    ),
    ColumnSchema(
        name="numina-cot",
        prompt="problem",
        answer="solution",
        anchors=("solution",),
        answer_of=last_boxed,
        no_answer="no \\boxed{} in the solution",
    ),
    ColumnSchema(
        name="gar", prompt="question", answer="answer", anchors=("expert_solution",), needs=("expert_solution",)
    ),
    ColumnSchema(
        name="gsm8k",
        prompt="question",
        answer="answer",
        anchors=("answer",),
        answer_of=_after_hashes,
        anchor_of=_before_hashes,
        no_answer="nothing after #### in the answer",
    ),
)
_BENCHMARKS = (
    ColumnSchema(
        name="matharena",
        prompt="problem",
        answer="answer",
        id="problem_idx",
        source="problem_type",
        needs=("problem_idx",),
    ),
    ColumnSchema(
        name="imo-answerbench",
        prompt="Problem",
        answer="Short Answer",
        id="Problem ID",
        source="Category",
        needs=("Problem ID", "Category"),
    ),
    ColumnSchema(
        name="gpqa",
        prompt="Question",
        answer="Correct Answer",
        id="Record ID",
        source="High-level domain",
        needs=_GPQA_WRONG,
        with_choices=_shuffled_choices,
    ),
    ColumnSchema(
        name="mmlu-pro",
        prompt="question",
        answer="answer",
        id="question_id",
        source="category",
        needs=("question_id", "options", "answer_index", "category"),
        with_choices=_listed_choices,
    ),
    ColumnSchema(name="math-500", prompt="problem", answer="answer", id="unique_id", source="subject"),
)
SCHEMAS = {schema.name: schema for schema in (*_BENCHMARKS, *reversed(_DETECTED))}
"""The first of each name."""


def choose_schema(columns: Collection[str], options: SourceSettings = DEFAULT_SOURCE, *, source: str) -> ColumnSchema:
    """The schema that fits the columns of `source`, with the fields that the user named, which make it `gar`.

    A `DataError` names the columns that are missing, those found, the nearest, and the flag that helps.
    """
    named = options.prompt_field or options.answer_field is not None
    name = options.column_schema or ("gar" if named else None)
    candidates = [
        dataclasses.replace(
            schema,
            prompt=options.prompt_field or schema.prompt,
            answer=schema.answer if options.answer_field is None else options.answer_field,
        )
        for schema in _DETECTED
        if name in (None, schema.name)
    ]
    missing = [[column for column in each.required if not has_column(columns, column)] for each in candidates]
    schema, lacking = min(zip(candidates, missing, strict=True), key=lambda pair: len(pair[1]))  # the first of equals
    if lacking:
        raise _missing_columns(schema, lacking, columns, source)
    return dataclasses.replace(schema, anchors=options.expert_fields or schema.anchors)


def check_schema(
    schema: ColumnSchema, columns: Collection[str], options: SourceSettings, *, place: str, source: str
) -> None:
    """Raise a `DataError` if the columns seen so far choose another schema than the first row did."""
    other = choose_schema(columns, options, source=source)
    if other != schema:
        raise DataError(
            f"{place}: this row has columns that the first row lacks. With them the schema is {other.name} "
            f"({', '.join(other.required)}), and the rows before were read as {schema.name} "
            f"({', '.join(schema.required)}). Give all rows the same columns, or choose with column_schema "
            "(--column-schema)."
        )


def _missing_columns(
    schema: ColumnSchema, lacking: Collection[str], columns: Collection[str], source: str
) -> DataError:
    flags = {schema.prompt: "prompt_field (--prompt-field)", schema.answer: "answer_field (--answer-field)"}
    advice = "".join(
        f" no column {column!r}.{did_you_mean(column, columns)}"
        + (f" Name it with {flags[column]}." if column in flags else "")
        for column in lacking
    )
    if len(columns) == 1 and re.search(r"[;\t|]", next(iter(columns))):
        advice += " Values of a .csv are separated by commas."
    names = ", ".join(f"{known.name} ({', '.join(known.required)})" for known in _DETECTED)
    return DataError(
        f"{source}:{advice} Found {', '.join(map(repr, columns)) or 'no columns'}. Known schemas: {names}."
    )


def read_problem(row: Row, schema: ColumnSchema, *, place: str, default_id: str, default_source: str) -> Problem | str:
    """Turn one row into a problem, or into the reason why it gives none. The defaults are for a row without the column.

    A `DataError` begins with `place`: a required column is missing from this row, or a value has the wrong type.
    """
    # A missing column is an error. What a data set marks as unusable, or leaves empty, is dropped with a reason.
    prompt = column_value(row, schema.prompt, place)
    answer = column_value(row, schema.answer, place) if schema.answer else None
    if reason := schema.unusable(row):
        return reason
    prompt = _prompt(prompt, place, schema.prompt)
    if not prompt:
        return "the prompt is empty"
    if isinstance(answer, list):  # of several values
        answer = ", ".join(filter(None, (_scalar_text(each, place, schema.answer) for each in answer)))
    answer = schema.answer_of(_scalar_text(answer, place, schema.answer))
    if schema.answer and not answer:
        return schema.no_answer
    # Optional columns have a default.
    source = column_value(row, schema.source)
    source = ", ".join(map(str, source)) if isinstance(source, list) else source
    problem = Problem(
        id=_scalar_text(column_value(row, schema.id), place, schema.id) or default_id,
        prompt=prompt,
        answer=answer,
        anchors=_anchors(row, schema, place),
        source=_scalar_text(source, place, schema.source) or default_source,
    )
    return schema.with_choices(problem, row, place)


def has_column(columns: Collection[str], column: str) -> bool:
    """Whether there is a column, or one of objects with a field: `a` for `a.b`."""
    return column in columns or column.partition(".")[0] in columns


def column_value(row: Row, column: str, place: str | None = None) -> Any:
    """The value of a column, or of a field of a column that holds objects: `a.b`.

    If it is missing: None, or, if `place` is given, a `DataError`.
    """
    if column in row:
        return row[column]
    value: Any = row
    rest = column
    while isinstance(value, dict):
        if rest in value:
            return value[rest]
        name, dot, rest = rest.partition(".")
        if not dot or name not in value:
            break
        value = value[name]
    if place is None:
        return None
    raise DataError(f"{place}: no column {column!r} in this row. It has {', '.join(map(repr, row))}.")


def _anchors(row: Row, schema: ColumnSchema, place: str) -> tuple[Anchor, ...]:
    for field in schema.anchors:
        value = column_value(row, field)
        texts = value if isinstance(value, list) else [value]
        anchors = [schema.anchor_of(checked_text(text, place, field)) for text in texts if text is not None]
        if any(anchors):
            return tuple(Anchor(text=text) for text in anchors if text)
    return ()


def _prompt(value: object, place: str, column: str) -> Prompt:
    """The prompt as it is written: a line break at its end keeps byte-pair tokens from reaching into the response."""
    if not isinstance(value, list):
        text = "" if value is None else checked_text(value, place, column)
        return text if text.strip() else ""
    messages: list[Message] = []
    for message in value:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message):
            raise DataError(
                f"{place}: column {column!r} is an array, so each entry must be a chat message "
                f'{{"role": "user", "content": "..."}}, got {str(message)[:60]}.'
            )
        messages.append({"role": message["role"], "content": checked_text(message["content"], place, column)})
    return messages if any(message["content"].strip() for message in messages) else ""


_EXACT = 2**53
"""Below it every integer is a float."""


def _scalar_text(value: object, place: str, column: str) -> str:
    """Text, or a number as text. "" for null. An answer such as 18 is often stored as a number."""
    if type(value) is str:  # first, since most are
        return checked_text(value, place, column).strip()
    if value is None:
        return ""
    if isinstance(value, float) and math.isfinite(value):
        if abs(value) >= _EXACT:
            raise DataError(
                f"{place}: column {column!r} holds the float {value:g}. Floats of this size have lost digits of the "
                "integer that was meant: store it as text. `datasets` reads a JSON column with one integer beyond 64 "
                "bits as floats."
            )
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return checked_text(value, place, column).strip()


def checked_text(value: object, place: str, column: str) -> str:
    """A value that is text which a tokenizer can encode. A `DataError` for another type, or half a surrogate pair."""
    if not isinstance(value, str):
        raise DataError(f"{place}: column {column!r} must be text, got {type(value).__name__}: {str(value)[:60]}.")
    if not value.isascii() and re.search("[\ud800-\udfff]", value):
        raise DataError(f"{place}: column {column!r} holds half a surrogate pair, which no tokenizer can encode.")
    return value
