"""Convert TRL's rows to GAR's problems. A row is read when its group is sampled."""

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Self, cast

import numpy as np
import torch
from datasets import Dataset, IterableDataset

from gar.core import shuffled_groups
from gar.data.problems import problem_of, problems_of
from gar.data.schemas import ColumnSchema, choose_schema, column_value
from gar.data.table import SAMPLE, DatasetProblems, LazyProblems, anchored, sample
from gar.errors import ConfigError, DataError
from gar.integrations.trl.arguments import check_problems
from gar.methods import Method
from gar.reader import Reader
from gar.response import Anchors
from gar.scoring.anchors import check_anchors
from gar.settings import SourceSettings
from gar.types import Problem

_KEPT = 512
"""Problems whose anchors stay read, for the next pass over a small data set."""
PROBLEM = "gar_problem"
"""The column with the number of a row and its problem."""

Row = dict[str, Any]


class ReadRows(Dataset):
    """A data set that completes each row when it is read: new columns would copy a shuffled one."""

    _complete: Callable[[Row, int], Row]

    @classmethod
    def of(cls, rows: Dataset, complete: Callable[[Row, int], Row]) -> Self:
        """The same rows, each as `complete` makes it from the row and its number."""
        made: Any = copy.copy(rows)
        made.__class__ = cls
        made._complete = complete
        return made

    def __getitem__(self, key: Any) -> Any:
        """A completed row. Columns are as they were."""
        row: Any = super().__getitem__(key)
        return self._complete(row, range(len(self))[key]) if isinstance(key, int) else row

    def __iter__(self) -> Iterator[Row]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The completed rows."""
        return (self[i] for i in range(len(self)))

    def __getitems__(self, keys: list[int]) -> list[Row]:
        """The rows of a batch, as torch's loader asks for them."""
        return [self._complete(row, key) for key, row in zip(keys, super().__getitems__(keys), strict=True)]


class ProblemRows:
    """The problems of a data set, and the data set as TRL reads it: with the columns `prompt` and `PROBLEM`.

    `rows` are a `datasets.Dataset` or `IterableDataset`, or a list of rows or problems. `columns` are fields of
    `SourceSettings`.

    Raises:
        DataError: There are no rows, they are something else, or as `DatasetProblems`.
    """

    def __init__(self, rows: Any, columns: Mapping[str, Any]):
        self._columns = SourceSettings(**columns)
        if rows is None or isinstance(rows, Mapping):
            raise DataError(
                f"train_dataset is {type(rows).__name__}, expected a datasets.Dataset or IterableDataset with the "
                "columns prompt, answer and expert_solution, or a list of rows.",
                code="dataset-type",
            )
        self._streams = isinstance(rows, IterableDataset)  # `all` are only the first rows
        self._partners: np.ndarray | None = None  # of each problem, its own number if it has no anchors
        self._read_anchors = lru_cache(_KEPT)(_read_anchors)
        self.all, self.training = self._readable(rows)
        """The problems, and TRL's training data."""
        self._read_before = _holds_problems(rows)  # what they lack was seen then

    def check(self, args: Any, method: Method) -> None:
        """Check what a method needs of the data set, as far as a stream shows it."""
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

    def check_anchors(self, method: Method, reader: Reader) -> None:
        """Warn of expert solutions in a sample that are missing or cannot be scored. A `DataError` if these are all."""
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

    def shuffle_anchors(self, seed: int) -> None:
        """Swap anchors between the problems that have some. The seed decides how, equally on all ranks."""
        owners = torch.from_numpy(np.flatnonzero(anchored(self.all)))
        self._partners = np.arange(len(self.all))
        self._partners[owners] = shuffled_groups(owners, torch.Generator().manual_seed(seed)).numpy()

    def anchors(
        self, reader: Reader, numbers: Sequence[int], problems: Sequence[Problem], prompt_ids: Sequence[Sequence[int]]
    ) -> dict[int, Anchors]:
        """The anchors of the groups of a batch, each after the prompt that it answers, by the number of the problem."""
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
        """TRL's evaluation data: a data set or several by name."""
        if isinstance(rows, Mapping):
            return {name: self.evaluation(members) for name, members in rows.items()}
        return None if rows is None else self._readable(rows)[1]

    def taken(self, rows: Iterable[Row]) -> tuple[list[Row], list[int], list[Problem]]:
        """The rows of a batch without our column, their numbers and problems. Other rows are read and counted here."""
        rows = list(rows)
        found = [row.get(PROBLEM) or (i, problems_of([row], self._columns)[0]) for i, row in enumerate(rows)]
        rows = [{name: value for name, value in row.items() if name != PROBLEM} for row in rows]
        return rows, [number for number, _ in found], [problem for _, problem in found]

    def _readable(self, rows: Any) -> tuple[Sequence[Problem], Any]:
        """The problems of a data set, and the data set as TRL reads it."""
        if isinstance(rows, IterableDataset):
            first = list(rows.take(SAMPLE))
            problems = problems_of(_some(first), self._columns)
            complete = partial(_completed, choose_schema(first[0], self._columns, source="the rows"))
            return problems, rows.map(complete, with_indices=True)
        if isinstance(rows, LazyProblems):
            problems = _some(rows)
        elif isinstance(rows, Dataset):
            problems = DatasetProblems(_some(rows), self._columns)
        else:
            problems = problems_of(_some(list(rows)), self._columns)
        if _holds_problems(rows):
            numbers = Dataset.from_dict({"number": np.arange(len(problems))})
            return problems, ReadRows.of(numbers, lambda _, i: _row_of(problems[i], i))
        rows = rows if isinstance(rows, Dataset) else Dataset.from_list(cast("list[dict[str, Any]]", list(rows)))
        schema = choose_schema(rows[0], self._columns, source="the rows")
        return problems, ReadRows.of(rows, partial(_completed, schema))


def _some(rows: Any) -> Any:
    """The rows, of which there must be some, without a column of our name."""
    if not len(rows):
        raise DataError("the data set is empty: it has no rows.", code="no-rows")
    if isinstance(rows[0], Mapping) and PROBLEM in rows[0]:
        raise DataError(f"the data set has a column '{PROBLEM}', which GARTrainer adds.", code="reserved-column")
    return rows


def _read_anchors(reader: Reader, prompt_ids: tuple[int, ...], texts: tuple[str, ...]) -> Anchors:
    return reader.anchors(prompt_ids, texts)


def _holds_problems(rows: Any) -> bool:
    return isinstance(rows, LazyProblems) or (isinstance(rows, list) and isinstance(rows[0], Problem))


def _completed(schema: ColumnSchema, row: Row, number: int) -> Row:
    problem = problem_of(row, schema, number=number + 1)
    return {**row, "prompt": column_value(row, schema.prompt), PROBLEM: (number, problem)}


def _row_of(problem: Problem, number: int) -> Row:
    return {"answer": problem.answer, "prompt": copy.deepcopy(problem.prompt), PROBLEM: (number, problem)}
