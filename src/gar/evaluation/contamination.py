"""Find problems of a benchmark in a training set: exact copies and shared runs of 13 words.

The training set is streamed. Runs of 13 words follow Brown et al. 2020, appendix C. Words are runs of letters, digits
and underscores in lower case, so that LaTeX, spaces and punctuation do not hide a copy.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GRAM_WORDS = 13

_WORD = re.compile(r"\w+")


@dataclass(kw_only=True, slots=True)
class Overlap:
    """How far the training set holds one problem."""

    num_exact: int = 0
    """Rows with the same text, apart from case and white space."""
    num_sharing: int = 0
    """Rows that share 13 words in a row with the problem."""
    shared_fraction: float = 0.0
    """Largest share of the problem's runs in a single row, 1 if a row contains all of it."""
    place: str = ""
    """The row with the largest overlap. Empty if there is none."""


def find_overlaps(rows: Iterable[tuple[str, str]], problems: Mapping[str, str]) -> dict[str, Overlap]:
    """Look for every problem in every row of a training set, in one pass.

    `rows` are places and texts, `problems` texts by id. A problem with fewer than 13 words counts only as a copy.
    """
    by_text, by_run = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for name, text in problems.items():
        by_text[_plain(text)].append(name)
        for run in _runs(text):
            by_run[run].append(name)
    num_runs = Counter(name for names in by_run.values() for name in names)
    overlaps = {name: Overlap() for name in problems}
    for place, text in rows:
        for name in by_text.get(_plain(text), ()):
            overlaps[name].num_exact += 1
            _raise(overlaps[name], 1.0, place)
        shared = Counter(name for run in _runs(text) for name in by_run.get(run, ()))
        for name, count in shared.items():
            overlaps[name].num_sharing += 1
            _raise(overlaps[name], count / num_runs[name], place)
    return overlaps


def _raise(overlap: Overlap, fraction: float, place: str) -> None:
    if fraction > overlap.shared_fraction:
        overlap.shared_fraction, overlap.place = fraction, place


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _runs(text: str) -> set[str]:
    words = _WORD.findall(text.casefold())
    return {" ".join(words[i : i + GRAM_WORDS]) for i in range(len(words) - GRAM_WORDS + 1)}
