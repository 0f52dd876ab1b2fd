"""The outcome of grading one answer."""

from dataclasses import dataclass

from gar.types import Status

MAX_DETAIL_CHARS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Graded:
    """The outcome of grading one answer: a verdict without the response's format.

    Example: Graded(status=Status.WRONG, grade=0.0)
    """

    status: Status
    grade: float = 0.0
    detail: str = ""


def right_if(right: bool) -> Graded:
    """OK for a right answer, else WRONG."""
    return Graded(status=Status.OK, grade=1.0) if right else wrong()


def wrong(why: str = "") -> Graded:
    """An answer that is not equal to the gold answer, or not worked out."""
    return Graded(status=Status.WRONG, detail=why)


def unparsed(why: str) -> Graded:
    """An answer that cannot be read as exactly one value."""
    return Graded(status=Status.UNPARSED, detail=why)


def failed(why: str) -> Graded:
    """A gold answer that cannot be read, or a comparison that failed."""
    return Graded(status=Status.ERROR, detail=why)


def error_text(error: BaseException) -> str:
    """The kind and text of an error, at most `MAX_DETAIL_CHARS` long. Errors of a user's grader may fail to print."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}"[:MAX_DETAIL_CHARS]
