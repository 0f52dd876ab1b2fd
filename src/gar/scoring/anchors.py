"""Whether the expert solutions of a data set can be scored."""

from collections import Counter
from collections.abc import Sequence

from gar.data.problem_set import ProblemSet
from gar.errors import DataError
from gar.reader import Reader
from gar.response import SignalStatus
from gar.types import Problem

_FAULTS = {
    SignalStatus.NO_TOKENS: "have no token to score",
    SignalStatus.TOO_LONG: "exceed the model's context with their prompt",
}


def check_anchors(problems: Sequence[Problem], reader: Reader, *, whole: bool = True) -> str:
    """Read the anchors of a sample of problems (`ProblemSet.anchored_sample`).

    Args:
        problems: The problems.
        reader: Reads their anchors.
        whole: Whether these are all problems, and not the first ones of a stream.

    Returns:
        A sentence about the anchors that cannot be scored. "" if there are none.

    Raises:
        DataError: The sample holds every problem with anchors, and no anchor can be scored.
    """
    sample, complete = ProblemSet.of(problems).anchored_sample()
    read = [reader.anchors(reader.encode(each.prompt), [anchor.text for anchor in each.anchors]) for each in sample]
    faults = Counter(fault.status for anchors in read for fault in anchors.faults)
    if not faults:
        return ""
    total = faults.total() + sum(len(anchors.usable) for anchors in read)
    parts = [f"{count} {_FAULTS.get(status, status)}" for status, count in faults.items()]
    first = next(problem.id for problem, anchors in zip(sample, read, strict=True) if anchors.faults)
    text = f"Of {total} expert solutions read, {', '.join(parts)}, the first of problem {first!r}. They give no bonus."
    if whole and complete and total == faults.total():
        raise DataError(f"no problem has an expert solution that can be scored. {text}", code="no-anchors")
    return text
