"""Convert TRL's rows to GAR's problems."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset, IterableDataset

from gar.data.problems import problems_of
from gar.errors import DataError
from gar.settings import SourceSettings
from gar.types import Problem

INDEX = "problem_index"
"""The column that numbers the rows of the training data."""


class ProblemRows:
    """The problems of a data set, and the data set as TRL reads it: with the column `prompt`, its rows numbered.

    `rows` are a `datasets.Dataset` or a list of rows or problems, `columns` fields of `SourceSettings`.

    Raises:
        DataError: There are no rows, they are something else, or as `problems_of`.
    """

    def __init__(self, rows: Any, columns: Mapping[str, Any]):
        self._columns = SourceSettings(**columns)
        if rows is None or isinstance(rows, IterableDataset | Mapping):
            raise DataError(
                f"train_dataset is {type(rows).__name__}, expected a datasets.Dataset with the columns prompt, answer "
                "and expert_solution, or a list of rows. All of them are read before training starts.",
                code="dataset-type",
            )
        rows = rows if isinstance(rows, Dataset) else list(rows)
        self.all = problems_of(rows, self._columns)
        if not self.all:
            raise DataError("train_dataset is empty: there is nothing to train on.", code="no-rows")
        dataset = self._dataset(rows, self.all)
        if INDEX in dataset.column_names:
            raise DataError(
                f"train_dataset has a column '{INDEX}', which GARTrainer adds. Rename yours.", code="reserved-column"
            )
        self.training = dataset.add_column(INDEX, list(range(len(dataset))))
        """TRL's training data."""
        lacking = sum(not problem.anchors for problem in self.all)
        if 0 < lacking < len(rows) and not isinstance(rows[0], Problem):
            warnings.warn(
                f"{lacking:,} of {len(rows):,} rows have no expert solution: their responses earn no bonus.",
                stacklevel=3,
            )

    def evaluation(self, rows: Any) -> Any:
        """TRL's evaluation data: a data set or several by name, each with the column `prompt`."""
        if isinstance(rows, Mapping):
            return {name: self.evaluation(members) for name, members in rows.items()}
        if rows is None or isinstance(rows, IterableDataset):
            return rows
        return self._dataset(rows, problems_of(rows, self._columns))

    def _dataset(self, rows: Any, problems: Sequence[Problem]) -> Dataset:
        prompt = self._columns.prompt_field or "prompt"
        if not isinstance(rows, Dataset):
            given = [
                {"answer": p.answer} if isinstance(row, Problem) else row for row, p in zip(rows, problems, strict=True)
            ]
            return Dataset.from_list([{**row, "prompt": p.prompt} for row, p in zip(given, problems, strict=True)])
        if prompt == "prompt" and prompt in rows.column_names:
            return rows
        rest = rows.remove_columns([name for name in rows.column_names if name == "prompt"])
        return rest.add_column("prompt", [problem.prompt for problem in problems])

    def __getitem__(self, index: int) -> Problem:
        return self.all[index]

    def read(self, row: Mapping[str, Any]) -> Problem:
        """The problem of a row of evaluation data."""
        return problems_of([row], self._columns)[0]
