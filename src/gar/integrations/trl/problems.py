"""Convert TRL's rows to GAR's problems. A row is read when its group is sampled."""

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from accelerate import PartialState
from datasets import Dataset, IterableDataset
from xxhash import xxh3_64_hexdigest

from gar.data.problem_set import SAMPLE, ProblemSet, has_own_columns, own_problem
from gar.data.problems import problem_of, problems_of
from gar.data.schemas import ColumnSchema, choose_schema, column_value
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
_BY_NUMBER = {
    "shuffled-anchor": "draws its expert solutions from the whole data set",
    "random-anchor": "gives each row of the data set a vector of its own",
}
"""What alignments do by the number of a row."""
PROBLEM = "gar_problem"
"""The column that holds a row's number (None in a stream) and its problem."""

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

    `rows` are a `datasets.Dataset` or `IterableDataset`, a `ProblemSet`, or a list of rows or problems. `columns` are
    fields of `SourceSettings`.

    Raises:
        DataError: As `ProblemSet.of`, or `rows` are something else.
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
        are_problems = isinstance(rows, list) and bool(rows) and isinstance(rows[0], Problem)
        self._was_read = isinstance(rows, ProblemSet) or are_problems  # what they lack was seen then
        self._partners: np.ndarray | None = None  # of each problem, its own number if it has no anchors
        self._read_anchors = lru_cache(_KEPT)(_read_anchors)
        self.all, self.training = self._readable(rows)
        """The problems, and TRL's training data."""

    def check(self, args: Any, method: Method) -> None:
        """Check what a method needs of the data set, as far as a stream shows it, and warn of traps in a sample."""
        if note := trap_note(self.all.sample):
            warnings.warn(note, stacklevel=4)
        if not self._streams:
            return check_problems(args, method, self.all)
        if what := _BY_NUMBER.get(method.alignment or ""):
            raise ConfigError(
                f"{method.name} {what}, and train_dataset is a stream. Give a datasets.Dataset.", code="stream"
            )
        warnings.warn(
            "train_dataset is a stream: only its first rows are checked now. Whether there are enough for a batch, "
            "and whether ids repeat, is not.",
            stacklevel=4,
        )

    def check_prompts(self, model: Any, reader: Reader, max_new_tokens: int) -> None:
        """Raise a `DataError` for prompts in a sample that do not fit into the context with their response."""
        prompts = [reader.encode(each.prompt) for each in self.all.sample]
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
        read = [] if self._was_read else self.all.sample
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
        some = self.all.anchored_sample()[0][:_GRADED]
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
        self._partners = shuffled_partners(self.all.anchored, seed=seed)

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
        self, inputs: Iterable[Row], ranks: StepRanks, *, group_size: int, method: Method | None = None, before: int = 0
    ) -> tuple[list[Row], list[int], list[Problem]]:
        """Split a batch into its rows without our columns, their groups, and their problems.

        Give `method` for a training batch, and None for an evaluation. `before` is the number of earlier batches in
        the same optimizer step.

        The group of a row is its number in the data set. Rows of a stream or of a replaced data set have no number,
        because shards and processes each count from 0. Their groups are the `group_size` consecutive rows of the
        global batch that TRL repeats, numbered through the step.

        Raises:
            ConfigError: Rows without a number, under a method that reads it.
            DataError: A row gives no problem, a group has several, or texts and chat messages are mixed.
        """
        rows = [row if PROBLEM in row else self._completed(row) for row in inputs]
        numbers, problems = map(list, zip(*(row[PROBLEM] for row in rows), strict=True))
        if None in numbers:
            if method is not None and (what := _BY_NUMBER.get(method.alignment or "")):
                raise ConfigError(
                    f"train_dataset was replaced, and {method.name} {what}. Make a new trainer.",
                    code="replaced-dataset",
                )
            numbers = _repeated(problems, ranks, group_size, before)
        _check_forms(problems)
        given = [{name: value for name, value in row.items() if name != PROBLEM} for row in rows]
        return given, numbers, problems

    def _completed(self, row: Row) -> Row:
        """A row of a data set that has taken the place of ours: `trainer.train_dataset` was replaced."""
        if not has_own_columns(row):
            return _stream_row(choose_schema(row, self._columns, source="the rows of train_dataset"), row)
        problem, render = own_problem(row), self.all.render
        return _row_of(problem if render is None else render(problem), None)

    def _readable(self, rows: Any) -> tuple[ProblemSet, Any]:
        """The problems of a data set, and the data set as TRL reads it."""
        if isinstance(rows, IterableDataset):
            rows = rows.with_format(None)  # another one would turn the numbers of a row into tensors
            first = list(rows.take(SAMPLE))
            problems = ProblemSet.of(problems_of(first, self._columns))
            _check_name(first[0])
            return problems, rows.map(partial(_stream_row, choose_schema(first[0], self._columns, source="the rows")))
        problems = ProblemSet.of(rows, self._columns)
        _check_name(problems.rows.features)
        return problems, ReadRows.of(problems.rows, partial(_table_row, problems))


def _check_forms(problems: Sequence[Problem]) -> None:
    if len({type(each.prompt) for each in problems}) > 1:
        raise DataError(
            "a batch has prompts that are texts and prompts that are chat messages, and TRL looks only at the first. "
            "Make all of them chat messages.",
            code="mixed-prompts",
        )


def _repeated(problems: Sequence[Problem], ranks: StepRanks, group_size: int, before: int) -> list[int]:
    """Number this rank's groups by their place in the step. A `DataError` if a group has several problems."""
    of_all, first = ranks.gather([xxh3_64_hexdigest(repr(problem).encode()) for problem in problems])
    for start in range(0, len(of_all), group_size):
        if len({*of_all[start : start + group_size]}) > 1:
            raise DataError(
                f"rows {start + 1} to {start + group_size} of the batch are one group for TRL, and have different "
                "problems. A stream whose shards are divided among ranks needs whole groups on each rank: make "
                "per_device_train_batch_size times steps_per_generation a multiple of num_generations.",
                code="mixed-group",
            )
    first += before * len(of_all)
    return [(first + i) // group_size for i in range(len(problems))]


def _check_name(columns: Mapping[str, Any]) -> None:
    """Raise a `DataError` for a column of our name."""
    if PROBLEM in columns:
        raise DataError(f"the data set has a column '{PROBLEM}', which GARTrainer adds.", code="reserved-column")


def _read_anchors(reader: Reader, prompt_ids: tuple[int, ...], texts: tuple[str, ...]) -> Anchors:
    return reader.anchors(prompt_ids, texts)


def _table_row(problems: ProblemSet, row: Row, number: int) -> Row:
    """A row of a data set with its prompt and problem."""
    problem = problems.problem(row, number)
    if problems.is_own:
        return _row_of(problem, number)
    return {**row, "prompt": column_value(row, problems.schema.prompt), PROBLEM: (number, problem)}


def _stream_row(schema: ColumnSchema, row: Row) -> Row:
    """A row with its prompt and problem. It has no number, because shards and processes repeat numbers."""
    prompt = column_value(row, schema.prompt)
    id = f"prompt-{xxh3_64_hexdigest(str(prompt).encode())}"
    problem = problem_of(row, schema, place="a row of the stream", default_id=id)
    return {**row, "prompt": prompt, PROBLEM: (None, problem)}


def _row_of(problem: Problem, number: int | None) -> Row:
    """A problem as TRL and reward functions get it."""
    return {"answer": problem.answer, "prompt": copy.deepcopy(problem.prompt), PROBLEM: (number, problem)}
