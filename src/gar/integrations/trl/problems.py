"""TRL trains and evaluates on rows, GAR grades problems: which problem a row stands for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from datasets import Dataset

from gar.data.problems import problems_of
from gar.errors import ConfigError, DataError
from gar.types import Message, Problem, Prompt


class ProblemRows:
    """Problems, and rows of TRL's data sets that stand for them by `prompt` and `problem_index`.

    Args:
        problems: What is trained on; the first numbers are theirs.
    """

    def __init__(self, problems: Sequence[Problem]):
        self._problems: list[Problem] = []
        self.training = self.add(problems)

    def add(self, problems: Iterable[Problem | Mapping[str, Any]]) -> Dataset:
        """A data set of further problems, which get the next numbers.

        Raises:
            DataError: There are none; or as `problems_of`.
        """
        problems = problems_of(problems)
        if not problems:
            raise DataError("a set of problems is empty: there is nothing to train or evaluate on")
        first = len(self._problems)
        self._problems += problems
        return Dataset.from_list([{"prompt": p.prompt, "problem_index": first + i} for i, p in enumerate(problems)])

    def evaluation(self, problems: Any, dataset: Any) -> Any:
        """What TRL evaluates on: data sets of these problems, one or several by name, or else the given data set.

        Raises:
            ConfigError: Both are given.
            DataError: As `add`; or as `index`, for a row of a data set in memory.
        """
        if problems and dataset is not None:
            raise ConfigError("eval_problems and eval_dataset cannot both be set")
        if problems:
            is_one = not isinstance(problems, Mapping)
            return self.add(problems) if is_one else {name: self.add(members) for name, members in problems.items()}
        for rows in dataset.values() if isinstance(dataset, Mapping) else [dataset]:
            if isinstance(rows, Dataset):
                for row in rows:
                    self.index(cast(dict, row))
        return dataset

    def replace_training(self, problems: Sequence[Problem]) -> None:
        """Put others in the place of the problems that are trained on; prompts and order are the same."""
        assert len(problems) == len(self.training)
        self._problems[: len(problems)] = problems

    def __getitem__(self, index: int) -> Problem:
        return self._problems[index]

    def index(self, row: Mapping[str, Any]) -> int:
        """Which problem a row stands for.

        Raises:
            DataError: It stands for none: a data set of the user's own, whose answers are not known here.
        """
        index = row.get("problem_index")
        if not isinstance(index, int) or not 0 <= index < len(self._problems):
            fault = f"its problem_index is {index!r}, expected a number from 0 to {len(self._problems) - 1}"
        elif _messages(row.get("prompt")) != _messages(self._problems[index].prompt):
            fault = (
                f"its prompt is {row.get('prompt')!r}, but problem {index} has another: "
                f"{self._problems[index].prompt!r}"
            )
        else:
            return index
        raise DataError(
            f"a row of a data set stands for no known problem: {fault}. Responses are graded against the answer of a "
            "problem, so give GARTrainer `eval_problems` instead of an `eval_dataset`."
        )


def _messages(prompt: Prompt | None) -> str | list[Message] | None:
    """Without the keys that Arrow adds to a message because another one has them."""
    if not isinstance(prompt, list):
        return prompt
    return [{key: value for key, value in message.items() if value is not None} for message in prompt]
