"""How a command ends: its exit status, and a sentence about a degenerate result (docs/errors.md)."""

from collections.abc import Mapping

from gar.types import ResponseFormat, Status

DONE = 0
REFUSED = 1
"""An error, explained on stderr, or a positive finding of a command that searches."""
WRONG_USAGE = 2
DEGENERATE = 3
"""Finished, and every response failed in the same way: the numbers are about the failure."""
INTERRUPTED = 130


def degenerate(
    *,
    total: int,
    format: ResponseFormat,
    well_formatted: int,
    statuses: Mapping[str, int],
    truncated: int = 0,
) -> str:
    """Why a result of `total` responses is empty, and the flag that helps. "" for an ordinary result.

    `statuses` counts responses by verification status, and is empty if nothing was verified.
    """
    decided = sum(statuses.get(status, 0) for status in (Status.OK, Status.WRONG))
    none = f"None of {total:,} responses"
    faults = {
        f"All {total:,} responses were cut off at the length limit. Raise --max-new-tokens.": truncated == total,
        f"{none} is in the format '{format}', so none counts as correct. For texts without its marks add "
        "--format none.": not well_formatted,
        f"{none} was graded: {_ungraded(statuses, format)}": statuses and not decided,
    }
    return next((sentence for sentence, holds in faults.items() if holds), "")


def _ungraded(statuses: Mapping[str, int], format: ResponseFormat) -> str:
    most = max(statuses, key=lambda status: statuses[status], default="")
    if most == Status.TIMEOUT:
        return "every check ran into its time limit. Raise the limit (--help: timeout-seconds)."
    if most == Status.ERROR:
        return "the gold answers cannot be read as one value each. Your own grader may also fail."
    advice = "Were they cut off before it?" if format == "none" else "To look for it anywhere: --format none."
    return f"no answer was found that reads as exactly one value. {advice}"
