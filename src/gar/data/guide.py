"""Problems that a model never solves, with the beginning of their solution in the prompt [POPE, arXiv 2601.18779].

A group of responses that are all wrong teaches nothing. A prompt that holds the first steps of the solution makes some
of them right. The expert solution of such a problem is the rest of the one that it had.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gar.data.prompts import edited
from gar.types import Anchor, Problem, Tags

SHARES = (0.25, 0.5, 0.75)
"""Shares of a solution that are tried, the shortest first."""
WORDING = "{prompt}\n\nA correct solution begins like this:\n{beginning}\nGo on from there."
_BORDER = re.compile(r"\n+|(?<=[.;!?])\s+|(?<=\bthen)\s+")
_ANSWER = (r"\boxed", "####")

CountRight = Callable[[Sequence[Problem]], Sequence[int]]
"""How many of a fixed number of responses to each problem are right."""


@dataclass(frozen=True, kw_only=True)
class Guided:
    """All problems in their order, the share of the solution in the prompt by id, and how many were never solved."""

    problems: Sequence[Problem]
    shares: Mapping[str, float]
    num_hard: int


def guide_problems(
    problems: Sequence[Problem],
    count_right: CountRight,
    *,
    num_samples: int,
    wording: str = WORDING,
    tags: Tags | None = None,
) -> Guided:
    """Replace each problem without a right response by a copy with the beginning of its solution in the prompt.

    The first expert solution counts. Its beginning is the shortest of `SHARES` with which some but not all responses
    are right. If there is none, the problem does not change. `wording` has {prompt} and {beginning}.
    """
    guided = list(problems)
    waiting = [i for i, right in enumerate(count_right(problems)) if right == 0]
    num_hard, shares = len(waiting), dict[str, float]()
    for share in SHARES:
        tried = {i: copy for i in waiting if (copy := guided_copy(problems[i], share, wording, tags or Tags()))}
        counts = count_right([*tried.values()]) if tried else []
        found = {i: copy for (i, copy), right in zip(tried.items(), counts, strict=True) if 0 < right < num_samples}
        for i, copy in found.items():
            guided[i] = copy
            shares[copy.id] = share
        waiting = [i for i in waiting if i not in found]
    return Guided(problems=guided, shares=shares, num_hard=num_hard)


def guided_copy(problem: Problem, share: float, wording: str, tags: Tags) -> Problem | None:
    """The problem with at most this share of its solution in the prompt. None if no step ends early enough."""
    parts = split_solution(problem.anchors[0].text, share, tags) if problem.anchors else None
    if parts is None:
        return None
    beginning, rest = parts
    prompt = edited(problem.prompt, lambda text: wording.replace("{prompt}", text).replace("{beginning}", beginning))
    return replace(problem, prompt=prompt, anchors=(Anchor(text=rest),))


def split_solution(solution: str, share: float, tags: Tags) -> tuple[str, str] | None:
    """A solution's beginning, without the opening thinking tag, and its rest, which has the tag again.

    The cut is the last border of a line, a sentence or a step (`;` or "then") within the share of the working, which
    ends before the answer.

    Example:
        >>> split_solution("<think> [ 1 * 0 = 0 ; 0 - 3 = 7 ] </think> <answer> 7 </answer>", 0.75, Tags())
        ('[ 1 * 0 = 0 ;', '<think> 0 - 3 = 7 ] </think> <answer> 7 </answer>')
    """
    opened, tag, after = solution.partition(tags.think_open)
    before, text = (opened + tag, after) if tag else ("", solution)
    ends = [place for end in (tags.think_close, tags.answer_open, *_ANSWER) if (place := text.find(end)) >= 0]
    length = min(ends, default=len(text))
    cuts = [border.end() for border in _BORDER.finditer(text, 0, length) if border.start() <= share * length]
    if not cuts or not text[: cuts[-1]].strip() or not text[cuts[-1] : length].strip():
        return None
    space = " " if before and text[:1] == " " else ""
    return text[: cuts[-1]].strip(), before + space + text[cuts[-1] :]
