"""The anchors that a response is compared with: its problem's own, or a control's."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, islice

import numpy as np
import torch

from gar.core import shuffled_groups
from gar.data.table import SAMPLE, anchored
from gar.errors import DataError
from gar.methods.base import AlignmentSource
from gar.reader import Reader
from gar.response import Anchors, SignalStatus
from gar.types import Problem

_KEPT = 512
_FAULTS = {
    SignalStatus.NO_TOKENS: "have no token to score",
    SignalStatus.TOO_LONG: "exceed the model's context with their prompt",
}


class AnchorReader:
    """Reads the anchors of a data set's problems when a group first needs them, and keeps the last ones.

    Under "shuffled-anchor" each problem with anchors gets the anchors and the prompt of another one, which is the same
    throughout a run and on every rank.
    """

    def __init__(self, problems: Sequence[Problem], reader: Reader, *, source: AlignmentSource | None, seed: int):
        self._problems, self._reader = problems, reader
        self._partners: np.ndarray | None = None  # of each problem, its own number if it has no anchors
        if source == "shuffled-anchor":
            owners = torch.from_numpy(np.flatnonzero(anchored(problems)))
            self._partners = np.arange(len(problems))
            self._partners[owners] = shuffled_groups(owners, torch.Generator().manual_seed(seed)).numpy()
        self._own = lru_cache(_KEPT)(self._read_own)
        self._of = lru_cache(_KEPT)(self._read_of)

    def anchors(self, number: int, problem: Problem, prompt_ids: Sequence[int]) -> Anchors:
        """The anchors of a problem, each after the prompt that it answers. `number` is its position."""
        partner = number if self._partners is None else int(self._partners[number])
        if partner != number:
            return self._of(partner)
        return self._own(tuple(prompt_ids), tuple(anchor.text for anchor in problem.anchors))

    def _read_own(self, prompt_ids: tuple[int, ...], texts: tuple[str, ...]) -> Anchors:
        return self._reader.anchors(list(prompt_ids), list(texts))

    def _read_of(self, number: int) -> Anchors:
        problem = self._problems[number]
        return self._reader.anchors(self._reader.encode(problem.prompt), [anchor.text for anchor in problem.anchors])


def check_anchors(problems: Sequence[Problem], reader: Reader, *, whole: bool = True) -> str:
    """Read the anchors of up to 64 problems, evenly spread over those that have some.

    Args:
        problems: The problems.
        reader: Reads their anchors.
        whole: Whether these are all problems, and not the first ones of a stream.

    Returns:
        A sentence about the anchors that cannot be scored. "" if there are none.

    Raises:
        DataError: These are all problems with anchors, and none of their anchors can be scored.
    """
    owners = anchored(problems)
    num_owners = np.count_nonzero(owners)
    every = max(1, math.ceil(num_owners / SAMPLE))
    # Their positions would take eight bytes a problem.
    sample = [problems[i] for i in islice(compress(range(len(problems)), owners.tobytes()), 0, None, every)]
    read = [reader.anchors(reader.encode(each.prompt), [anchor.text for anchor in each.anchors]) for each in sample]
    faults = Counter(fault.status for anchors in read for fault in anchors.faults)
    if not faults:
        return ""
    total = faults.total() + sum(len(anchors.usable) for anchors in read)
    parts = [f"{count} {_FAULTS.get(status, status)}" for status, count in faults.items()]
    first = next(problem.id for problem, anchors in zip(sample, read, strict=True) if anchors.faults)
    text = f"Of {total} expert solutions read, {', '.join(parts)}, the first of problem {first!r}. They give no bonus."
    if whole and total == faults.total() and len(sample) == num_owners:
        raise DataError(f"no problem has an expert solution that can be scored. {text}", code="no-anchors")
    return text
