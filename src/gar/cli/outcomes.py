"""How a command ends: its exit status, and a sentence about a result that says nothing (docs/errors.md)."""

from collections.abc import Mapping
from dataclasses import dataclass

from gar.types import ResponseFormat, Status

DONE = 0
REFUSED = 1
"""An error that is explained on stderr; or the finding that the command looks for."""
WRONG_USAGE = 2
DEGENERATE = 3
"""Finished, and every response failed in the same way: the numbers are about the failure."""
INTERRUPTED = 130

_MOST = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class GradedResponses:
    """Counts over the responses of a finished result.

    Attributes:
        total: Responses.
        format: The format that they were read in.
        well_formatted: Responses in that format.
        statuses: Responses by how their verification ended; empty where nothing was verified.
        truncated: Responses cut off at the length limit.
        aligned: Responses with an alignment; None where none was asked for.
        unknown_fraction: Share of their tokens that the tokenizer has no word for.
    """

    total: int
    format: ResponseFormat
    well_formatted: int
    statuses: Mapping[str, int]
    truncated: int = 0
    aligned: int | None = None
    unknown_fraction: float = 0.0


def degenerate(result: GradedResponses) -> str:
    """What makes a result say nothing, and the flag that would mend it; "" for an ordinary result."""
    total, num_decided = result.total, sum(result.statuses.get(status, 0) for status in (Status.OK, Status.WRONG))
    if result.unknown_fraction > _MOST:
        return (
            f"{result.unknown_fraction:.0%} of the responses' tokens are unknown to the tokenizer, so the alignments "
            "compare placeholders. Name the model that wrote the responses as MODEL."
        )
    if result.truncated == total:
        return f"All {total:,} responses were cut off at the length limit. Raise --max-new-tokens."
    if not result.well_formatted:
        return (
            f"None of {total:,} responses is in the format '{result.format}', so none counts as correct. For texts "
            "without its marks add --format none."
        )
    if result.statuses and not num_decided:
        return f"None of {total:,} responses was graded: {_ungraded(result)}"
    if result.aligned == 0:
        return (
            f"None of {total:,} responses has an alignment; the rows 'signal' below say why. Do MODEL and the expert "
            "solutions (--anchor-fields) belong to these responses?"
        )
    return ""


def _ungraded(result: GradedResponses) -> str:
    most = max(result.statuses, key=lambda status: result.statuses[status])
    if most == Status.TIMEOUT:
        return "every check ran into its time limit. Raise the limit (--help: timeout-seconds)."
    if most == Status.ERROR:
        return (
            "the gold answers cannot be read as one value each. If their column holds whole solutions, add "
            "--answer-in-solution; a grader of your own may also fail."
        )
    if result.format == "none":
        return "no answer was found that reads as exactly one value. Were they cut off before it?"
    return "no answer was found that reads as exactly one value. To look for it anywhere in the text: --format none."
