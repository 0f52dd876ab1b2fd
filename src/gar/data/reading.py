"""One pass over a source of problems, which counts what it drops."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from gar.data.problems import check_ids, iter_problems, no_problems
from gar.settings import SourceSettings
from gar.types import Problem


class Reading:
    """One pass over a source. Iterate over it once: it counts what it drops and what lacks an expert solution.

    Args:
        source: As in `iter_problems`.
        options: Columns, split and revision. None detects the schema.
        max_problems: Stop after this many problems, and read no further row.

    Raises:
        DataError: In the pass, as `iter_problems`, or at its end: no row gives a problem, or an id is used twice.
    """

    def __init__(self, source: str, options: SourceSettings, max_problems: int | None = None):
        self._source, self._options, self._most = source, options, max_problems
        self._ids = array("q")  # hashes: a million ids take 8 MB
        self._dropped, self._first_dropped = Counter[str](), dict[str, str]()
        self._num_lacking, self._first_lacking = 0, ""

    def __iter__(self) -> Iterator[Problem]:
        """The problems."""
        for place, problem in islice(iter_problems(self._source, self._options, on_drop=self._drop), self._most):
            self._ids.append(hash(problem.id))
            if not problem.anchors:
                self._num_lacking += 1
                self._first_lacking = self._first_lacking or f"{place}: problem {problem.id!r}"
            yield problem
        if not self._ids:
            raise no_problems(self._source, self._options, self._dropped)
        if _repeats(np.array(self._ids)):  # rare: the places are found in a second pass
            again = islice(iter_problems(self._source, self._options), self._most)
            check_ids((place, problem.id) for place, problem in again)

    def _drop(self, place: str, reason: str) -> None:
        self._first_dropped.setdefault(reason, place)
        self._dropped[reason] += 1

    def notes(self) -> list[str]:
        """After the pass: the first place of what was dropped and of what lacks an expert solution, and how many."""
        num_kept, total = len(self._ids), len(self._ids) + self._dropped.total()
        notes = [
            f"{self._first_dropped[reason]}: dropped, {reason} ({count} of {total} rows)."
            for reason, count in self._dropped.most_common()
        ]
        if self._num_lacking:
            missing = f"no expert solution ({self._num_lacking} of {num_kept} lack one)"
            notes.append(f"{self._first_lacking} has {missing}.")
        return notes


def may_repeat(ids: Iterable[str]) -> bool:
    """Whether two ids may be equal. Certain for False: hashes are compared, which are smaller than a set of ids."""
    return _repeats(np.fromiter(map(hash, ids), dtype=np.int64))


def _repeats(hashes: np.ndarray) -> bool:
    hashes.sort()
    return bool((hashes[1:] == hashes[:-1]).any())
