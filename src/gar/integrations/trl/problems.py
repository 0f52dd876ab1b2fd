"""Convert TRL's rows to GAR's problems. A row is read when its group is sampled."""

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Self, cast

import numpy as np
from accelerate import PartialState
from datasets import Dataset, IterableDataset
from xxhash import xxh3_64_hexdigest

from gar.data.problems import problem_of, problems_of
from gar.data.prompts import as_messages
from gar.data.schemas import ColumnSchema, choose_schema, column_value
from gar.data.table import SAMPLE, DatasetProblems, LazyProblems, anchored, anchored_sample, sample
from gar.data.traps import trap_note
from gar.errors import ConfigError, DataError
from gar.integrations.trl.arguments import check_problems
from gar.methods import Method
from gar.methods.gar import shuffled_partners
from gar.models.generate import check_prompt_lengths
from gar.reader import Reader, judge
from gar.response import Anchors, Response
from gar.scoring.anchors import check_anchors
from gar.settings import SourceSettings
from gar.step import StepRanks
from gar.types import Problem, ResponseVerifier

_KEPT = 512
"""How many problems keep their tokenized anchors, for the next pass over a small data set."""
_GRADED = 8
"""How many expert solutions are graded when the trainer is made."""
PROBLEM = "gar_problem"
"""The column that holds a row's number (None in a stream) and its problem."""
NUMBER = "gar_number"
"""The only stored column, if the data set was made from a list of problems."""

Row = dict[str, Any]


class ReadRows(Dataset):
    """A data set that completes each row when it is read. Adding columns would copy a shuffled data set."""

    _complete: Callable[[Row, int], Row]

    @classmethod
    def of(cls, rows: Dataset, complete: Callable[[Row, int], Row]) -> Self:
        """The same rows, with `complete(row, number)` applied to each when it is read."""
        made: Any = copy.copy(rows)
        made.__class__ = cls
        made._complete = complete
        return made

    def __getitem__(self, key: Any) -> Any:
        """A completed row. A column is returned as stored."""
        row: Any = super().__getitem__(key)
        return self._complete(row, range(len(self))[key]) if isinstance(key, int) else row

    def __iter__(self) -> Iterator[Row]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The completed rows."""
        return (self[i] for i in range(len(self)))

    def __getitems__(self, keys: list[int]) -> list[Row]:
        """The completed rows of a batch. torch's loader calls this."""
        return [self._complete(row, key) for key, row in zip(keys, super().__getitems__(keys), strict=True)]

    def map(self, *args: Any, **kwargs: Any) -> Dataset:
        """Map the stored rows, not the completed ones: Arrow does not store what `complete` adds."""
        rows: Any = copy.copy(self)
        rows.__class__ = Dataset
        return rows.map(*args, **kwargs)


class ProblemRows:
    """The problems of a data set, and the data set that TRL reads, with the columns `prompt` and `PROBLEM`.

    `rows` are a `datasets.Dataset` or `IterableDataset`, or a list of rows or problems. `columns` are fields of
    `SourceSettings`.

    Raises:
        DataError: There are no rows, `rows` has a different type, or `DatasetProblems` raises it.
    """

    def __init__(self, rows: Any, columns: Mapping[str, Any]):
        self._columns = SourceSettings(**columns)
        if rows is None or isinstance(rows, Mapping):
            raise DataError(
                f"train_dataset is {type(rows).__name__}, expected a datasets.Dataset or IterableDataset with the "
                "columns prompt, answer and expert_solution, or a list of rows.",
                code="dataset-type",
            )
        self._streams = isinstance(rows, IterableDataset)  # then `all` has only the first rows
        self._partners: np.ndarray | None = None  # the problem that lends its anchors, by problem
        self._read_anchors = lru_cache(_KEPT)(_read_anchors)
        self.all, self.training = self._readable(rows)
        """The problems, and TRL's training data."""
        self._read_before = _holds_problems(rows)  # missing solutions were reported when they were read

    def check(self, args: Any, method: Method) -> None:
        """Check what the method needs of the data set, or of the first rows of a stream. Warn of traps in a sample."""
        if note := trap_note(sample(self.all)):
            warnings.warn(note, stacklevel=4)
        if not self._streams:
            return check_problems(args, method, self.all)
        if method.alignment == "shuffled-anchor":
            raise ConfigError(
                f"{method.name} draws its expert solutions from the whole data set, and train_dataset is a stream. "
                "Give a datasets.Dataset.",
                code="stream",
            )
        warnings.warn(
            "train_dataset is a stream: only its first rows are checked now. Whether there are enough for a batch, "
            "and whether ids repeat, is not.",
            stacklevel=4,
        )

    def check_prompts(self, model: Any, reader: Reader, max_new_tokens: int) -> None:
        """Raise a `DataError` for prompts in a sample that do not fit into the context with their response."""
        prompts = [reader.encode(each.prompt) for each in sample(self.all)]
        lengths = np.array([len(ids) for ids in prompts])
        check_prompt_lengths(model, lengths, max_new_tokens, lambda i: reader.prompt_text(prompts[i][:24]))

    def check_anchors(self, method: Method, reader: Reader, verifier: ResponseVerifier | None) -> None:
        """Warn of expert solutions in a sample that are missing or cannot be scored.

        Also warn if `verifier` requires no format and finds most of the first ones wrong.

        Raises:
            DataError: None of them can be scored.
        """
        if method.alignment is None:
            return
        read = [] if self._read_before else sample(self.all)
        if lacking := sum(not problem.anchors for problem in read):
            warnings.warn(
                f"{lacking} of {len(read)} rows read have no expert solution: their responses earn no bonus.",
                stacklevel=3,
            )
        if note := check_anchors(self.all, reader, whole=not self._streams):
            warnings.warn(note, stacklevel=3)
        if verifier is not None and verifier.format == "none" and PartialState().is_main_process:
            self._check_answers(verifier)

    def _check_answers(self, verifier: ResponseVerifier) -> None:
        some = anchored_sample(self.all)[0][:_GRADED]
        judged = judge(verifier, [Response(text=problem.anchors[0].text) for problem in some], some)
        failed = [
            (problem, response.verdict)
            for problem, response in zip(some, judged, strict=True)
            if not response.verdict.verified
        ]
        if 2 * len(failed) > len(some):
            problem, verdict = failed[0]
            warnings.warn(
                f"{len(failed)} of the first {len(some)} expert solutions do not pass for their gold answers. For "
                f"example problem {problem.id!r}: gold {problem.answer!r}, the solution's answer {verdict.answer!r} is "
                f"{verdict.status}. Is answer_field the right column? `gar data check FILE` lists all.",
                stacklevel=4,
            )

    def shuffle_anchors(self, seed: int) -> None:
        """Swap anchors between the problems that have some. The same seed gives the same order on all ranks."""
        self._partners = shuffled_partners(anchored(self.all), seed=seed)

    def anchors(
        self, reader: Reader, numbers: Sequence[int], problems: Sequence[Problem], prompt_ids: Sequence[Sequence[int]]
    ) -> dict[int, Anchors]:
        """The anchors of the problems in a batch, by the problem's number. Each follows the prompt that it answers."""
        found: dict[int, Anchors] = {}
        for number, problem, ids in zip(numbers, problems, prompt_ids, strict=True):
            if number in found:
                continue
            partner = number if self._partners is None else int(self._partners[number])
            if partner != number:
                problem = self.all[partner]
                ids = reader.encode(problem.prompt)
            found[number] = self._read_anchors(reader, tuple(ids), tuple(anchor.text for anchor in problem.anchors))
        return found

    def evaluation(self, rows: Any) -> Any:
        """Prepare TRL's evaluation data: one data set, or several by name."""
        if isinstance(rows, Mapping):
            return {name: self.evaluation(members) for name, members in rows.items()}
        return None if rows is None else self._readable(rows)[1]

    def taken(
        self, inputs: Iterable[Row], ranks: StepRanks, *, group_size: int
    ) -> tuple[list[Row], list[int], list[Problem]]:
        """Split a batch into its rows without our columns, their groups, and their problems.

        The group of a row is its number in the data set. Rows of a stream or of a replaced data set have no number,
        because shards and processes each count from 0. Their groups are the `group_size` consecutive rows of the
        global batch that TRL repeats.

        Raises:
            ConfigError: Rows without a number, under a method that shuffles the data set's expert solutions.
            DataError: A row gives no problem, a group has several, or texts and chat messages are mixed.
        """
        rows = list(inputs)
        numbers, problems = [], []
        for row in rows:
            number, problem = row.get(PROBLEM) or self._read(row)
            numbers.append(number)
            problems.append(problem)
        if None in numbers:
            if self._partners is not None:
                raise ConfigError(
                    "train_dataset was replaced, and expert solutions were shuffled among the problems of the first "
                    "one. Make a new trainer.",
                    code="replaced-dataset",
                )
            numbers = _repeated(problems, ranks, group_size)
        _check_forms(problems)
        return [_given(row, problem) for row, problem in zip(rows, problems, strict=True)], numbers, problems

    def _read(self, row: Row) -> tuple[int | None, Problem]:
        """Number and problem of a row that was not completed, because `trainer.train_dataset` was replaced."""
        if NUMBER in row:
            return row[NUMBER], self.all[row[NUMBER]]
        schema = choose_schema(row, self._columns, source="the rows of train_dataset")
        return _completed(schema, row)[PROBLEM]

    def _readable(self, rows: Any) -> tuple[Sequence[Problem], Any]:
        """The problems of a data set, and the data set as TRL reads it."""
        if isinstance(rows, IterableDataset):
            rows = rows.with_format(None)  # another one would turn the numbers of a row into tensors
            first = list(rows.take(SAMPLE))
            problems = problems_of(_some(first), self._columns)
            complete = partial(_completed, choose_schema(first[0], self._columns, source="the rows"))
            return problems, rows.map(complete)
        if isinstance(rows, LazyProblems):
            problems = _some(rows)
        elif isinstance(rows, Dataset):
            problems = DatasetProblems(_some(rows), self._columns)
        else:
            rows = _some(list(rows))
            problems = _of_one_form(problems_of(rows, self._columns))
        if _holds_problems(rows):
            numbers = Dataset.from_dict({NUMBER: np.arange(len(problems))})
            return problems, ReadRows.of(numbers, lambda _, i: _row_of(problems[i], i))
        rows = cast(Any, rows)
        schema = choose_schema(rows[0], self._columns, source="the rows")
        if not isinstance(rows, Dataset):
            forms = {type(column_value(row, schema.prompt)) for row in rows}
            if len(forms) > 1:  # which Arrow does not store
                rows = [{**row, schema.prompt: each.prompt} for row, each in zip(rows, problems, strict=True)]
            rows = _all_columns(rows)
        return problems, ReadRows.of(rows, partial(_completed, schema))


def _all_columns(rows: Sequence[Mapping[str, Any]]) -> Dataset:
    """As `Dataset.from_list`, which drops what the first row lacks."""
    return Dataset.from_dict({name: [row.get(name) for row in rows] for name in dict.fromkeys(chain(*rows))})


def _of_one_form(problems: list[Problem]) -> list[Problem]:
    """Turn all prompts into chat messages if some are: TRL looks only at the first of a batch."""
    if all(isinstance(each.prompt, str) for each in problems):
        return problems
    return [dataclasses.replace(each, prompt=as_messages(each.prompt)) for each in problems]


def _check_forms(problems: Sequence[Problem]) -> None:
    if len({type(each.prompt) for each in problems}) > 1:
        raise DataError(
            "a batch has prompts that are texts and prompts that are chat messages, and TRL looks only at the first. "
            "Make all of them chat messages.",
            code="mixed-prompts",
        )


def _repeated(problems: Sequence[Problem], ranks: StepRanks, group_size: int) -> list[int]:
    """Number this rank's groups by their place in the global batch. A `DataError` if a group has several problems."""
    of_all, first = ranks.gather([xxh3_64_hexdigest(repr(problem).encode()) for problem in problems])
    for start in range(0, len(of_all), group_size):
        if len({*of_all[start : start + group_size]}) > 1:
            raise DataError(
                f"rows {start + 1} to {start + group_size} of the batch are one group for TRL, and have different "
                "problems. A stream whose shards are divided among ranks needs whole groups on each rank: make "
                "per_device_train_batch_size times steps_per_generation a multiple of num_generations.",
                code="mixed-group",
            )
    return [(first + i) // group_size for i in range(len(problems))]


def _given(row: Row, problem: Problem) -> Row:
    """The row that TRL and reward functions receive."""
    added: Row = {"answer": problem.answer} if NUMBER in row else {}
    added["prompt"] = row["prompt"] if "prompt" in row else copy.deepcopy(problem.prompt)
    return {name: value for name, value in row.items() if name not in (PROBLEM, NUMBER)} | added


def _some(rows: Any) -> Any:
    """Check that there are rows, and that no column has our name."""
    if not len(rows):
        raise DataError("the data set is empty: it has no rows.", code="no-rows")
    if isinstance(rows[0], Mapping) and PROBLEM in rows[0]:
        raise DataError(f"the data set has a column '{PROBLEM}', which GARTrainer adds.", code="reserved-column")
    return rows


def _read_anchors(reader: Reader, prompt_ids: tuple[int, ...], texts: tuple[str, ...]) -> Anchors:
    return reader.anchors(prompt_ids, texts)


def _holds_problems(rows: Any) -> bool:
    return isinstance(rows, LazyProblems) or (isinstance(rows, list) and isinstance(rows[0], Problem))


def _completed(schema: ColumnSchema, row: Row, number: int | None = None) -> Row:
    """Add prompt and problem to a row. A row of a stream has no number, because shards and processes repeat them."""
    prompt = column_value(row, schema.prompt)
    if number is None:
        id = f"prompt-{xxh3_64_hexdigest(str(prompt).encode())}"
        problem = problem_of(row, schema, place="a row of the stream", default_id=id)
    else:
        problem = problem_of(row, schema, place=f"row {number + 1}")
    return {**row, "prompt": prompt, PROBLEM: (number, problem)}


def _row_of(problem: Problem, number: int) -> Row:
    return {"answer": problem.answer, "prompt": copy.deepcopy(problem.prompt), PROBLEM: (number, problem)}
