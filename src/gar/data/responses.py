"""Rows that hold a problem and the responses to it: their columns, and how to read them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from gar.data.problems import prompt_hash
from gar.data.rows import Row, iter_rows
from gar.data.schemas import ColumnSchema, checked_text, column_value, read_problem
from gar.data.sources import row_place, source_name
from gar.errors import DataError
from gar.settings import Settings
from gar.types import Prompt
from gar.verify import answer_line, last_boxed

_NOT_STATED = "the solution states no answer (\\boxed{}, or a line that starts with #### or A:)"


class ResponseColumns(Settings):
    """The columns of a row. A dotted name reaches into objects: `6b_finetuning.solution`."""

    prompt_field: str = "prompt"
    """Column of the prompt: text as the policy saw it, or chat messages."""
    responses_fields: Annotated[tuple[str, ...], Field(min_length=1)] = ("responses",)
    """Column of a list of responses, or columns of one each. a.b is field b of column a."""
    answer_field: str = "answer"
    """Column of the gold answer."""
    answer_in_solution: bool = False
    """The answer column holds a solution: take its last \\boxed{}, or its last line that starts with #### or A:"""
    expert_fields: tuple[str, ...] = ("expert_solution",)
    """Columns of the expert solution in order of preference. The first that is not empty wins."""
    id_field: str = "id"
    """Column of the problem's id. A problem without one is named by file and line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseRow:
    """A problem and the responses to it.

    Attributes:
        line: Line of a JSONL file, or number of the row in another file. From 1.
        place: The same with the name of the source, for errors.
        response_fields: The column of each response.
        anchors: Expert solutions. Possibly none.
    """

    line: int
    place: str
    id: str
    prompt: Prompt
    responses: tuple[str, ...]
    response_fields: tuple[str, ...]
    answer: str
    anchors: tuple[str, ...]


@dataclass(kw_only=True, slots=True)
class ResponseSurvey:
    """Counts of rows, of responses, of rows with an expert solution, and of rows that repeat an earlier row's prompt.

    `errors` has an error for each row that cannot be read. `num_rows` counts these rows too.
    """

    num_rows: int = 0
    num_responses: int = 0
    num_anchored: int = 0
    num_repeated: int = 0
    errors: list[DataError] = field(default_factory=list)


def survey_rows(rows: Iterable[ResponseRow | DataError]) -> ResponseSurvey:
    """Count the rows of `iter_response_rows`."""
    survey = ResponseSurvey()
    prompts = set[int]()
    for row in rows:
        survey.num_rows += 1
        if isinstance(row, DataError):
            survey.errors.append(row)
            continue
        survey.num_responses += len(row.responses)
        survey.num_anchored += bool(row.anchors)
        prompts.add(prompt_hash(row.prompt))
    survey.num_repeated = survey.num_rows - len(survey.errors) - len(prompts)
    return survey


def iter_response_rows(source: str, columns: ResponseColumns) -> Iterator[ResponseRow | DataError]:
    """Read a file in bounded memory: each row, or its error. A `DataError` is raised if there is no such file."""
    broken: list[DataError] = []
    for number, row in iter_rows(source, on_error=broken.append):
        yield from broken
        broken.clear()
        try:
            yield read_response_row(row, columns, source=source, line=number)
        except DataError as error:
            yield error
    yield from broken


def read_response_row(row: Row, columns: ResponseColumns, *, source: str, line: int) -> ResponseRow:
    """Turn row number `line` of `source` into a problem and its responses, or raise a `DataError`."""
    place = row_place(source, line)
    schema = ColumnSchema(
        name="responses",
        prompt=columns.prompt_field,
        answer=columns.answer_field,
        anchors=columns.expert_fields,
        id=columns.id_field,
        source="",
    )
    if columns.answer_in_solution:
        schema = replace(schema, answer_of=stated_answer, no_answer=_NOT_STATED)
    problem = read_problem(row, schema, place=place, default_id=f"{source_name(source)}-{line}", default_source="")
    if isinstance(problem, str):
        raise DataError(f"{place}: {problem}.")
    found = list(_responses(row, columns, place))
    if not found:
        raise DataError(f"{place}: no responses in {', '.join(map(repr, columns.responses_fields))}.")
    return ResponseRow(
        line=line,
        place=place,
        id=problem.id,
        prompt=problem.prompt,
        responses=tuple(response for response, _ in found),
        response_fields=tuple(name for _, name in found),
        answer=problem.answer,
        anchors=tuple(anchor.text for anchor in problem.anchors),
    )


def stated_answer(solution: str) -> str:
    r"""The answer that a solution states: its last `\boxed{}`, else its last line that starts with ####, A: or Answer:.

    "" if none is stated. A last number is not taken for one.
    """
    return last_boxed(solution) or answer_line(solution).rstrip("*")


def _responses(row: Row, columns: ResponseColumns, place: str) -> Iterator[tuple[str, str]]:
    """The responses, and the column of each."""
    for name in columns.responses_fields:
        value = column_value(row, name, place)
        for response in value if isinstance(value, list) else [value]:
            if not isinstance(response, str):
                raise DataError(
                    f"{place}: column {name!r} must hold responses as text, one or a list of them, got "
                    f"{type(response).__name__}: {str(response)[:60]}. Are these token ids? Decode them."
                )
            yield checked_text(response, place, name), name
