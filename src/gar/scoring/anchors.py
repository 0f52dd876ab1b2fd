"""The anchors that a response is compared with: its problem's own, or a control's."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import torch

from gar.core import shuffled_groups
from gar.errors import DataError
from gar.methods.base import AlignmentSource
from gar.reader import Reader
from gar.response import Anchors, SignalStatus
from gar.types import Problem

_SAMPLE = 64
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
        self._owner: dict[int, int] = {}
        if source == "shuffled-anchor":
            owners = torch.tensor([i for i, problem in enumerate(problems) if problem.anchors], dtype=torch.long)
            others = shuffled_groups(owners, torch.Generator().manual_seed(seed))
            self._owner.update(zip(owners.tolist(), others.tolist(), strict=True))
        self._read = lru_cache(_KEPT)(self._read_now)

    def anchors(self, problem_index: int, prompt_ids: Sequence[int]) -> Anchors:
        """The anchors of a problem, each after the prompt that it answers."""
        owner = self._owner.get(problem_index, problem_index)
        return self._read(owner, tuple(prompt_ids) if owner == problem_index else None)

    def _read_now(self, owner: int, prompt_ids: tuple[int, ...] | None) -> Anchors:
        problem = self._problems[owner]
        context = self._reader.encode(problem.prompt) if prompt_ids is None else prompt_ids
        return self._reader.anchors(list(context), [anchor.text for anchor in problem.anchors])


def check_anchors(problems: Sequence[Problem], reader: Reader) -> str:
    """Read the anchors of up to 64 problems, evenly spread over those that have some.

    Returns:
        A sentence about the anchors that cannot be scored. "" if there are none.

    Raises:
        DataError: These are all problems with anchors, and none of their anchors can be scored.
    """
    owners = [problem for problem in problems if problem.anchors]
    sample = owners[:: max(1, len(owners) // _SAMPLE)][:_SAMPLE]
    read = [reader.anchors(reader.encode(each.prompt), [anchor.text for anchor in each.anchors]) for each in sample]
    faults = Counter(fault.status for anchors in read for fault in anchors.faults)
    if not faults:
        return ""
    total = faults.total() + sum(len(anchors.usable) for anchors in read)
    parts = [f"{count} {_FAULTS.get(status, status)}" for status, count in faults.items()]
    first = next(problem.id for problem, anchors in zip(sample, read, strict=True) if anchors.faults)
    text = f"Of {total} expert solutions read, {', '.join(parts)}, the first of problem {first!r}. They give no bonus."
    if total == faults.total() and len(sample) == len(owners):
        raise DataError(f"no problem has an expert solution that can be scored. {text}", code="no-anchors")
    return text
