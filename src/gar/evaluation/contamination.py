"""Finds problems of a benchmark in a training set: exact copies, shared 13-grams, and near-duplicates.

The training set is streamed: memory holds the benchmarks' problems and their overlaps, never the training set. An
n-gram of 13 words follows Brown et al. 2020, "Language Models are Few-Shot Learners", appendix C; words are runs of
letters, digits and underscores in lower case, so that LaTeX, spaces and punctuation do not hide a copy.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gar.errors import ConfigError

GRAM_WORDS = 13
SHINGLE_WORDS = 5
_EXCERPT_CHARACTERS = 200

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A problem to look for.

    Example: Target(benchmark="math-500", id="17", text="Let $n$ be a positive integer ...")
    """

    benchmark: str
    id: str
    text: str


@dataclass(kw_only=True, slots=True)
class Overlap:
    """How far the training set holds one problem.

    Attributes:
        target: The problem.
        num_grams: Distinct 13-grams of the problem; 0 for one with fewer words, of which only exact copies are found.
        num_exact: Rows with the same text, apart from case and white space.
        num_sharing: Rows that share a 13-gram with the problem.
        shared_fraction: Largest share of its 13-grams in a single row; 1 where a row contains all of it.
        num_near: Near-duplicate rows; 0 where they were not looked for.
        jaccard: Largest Jaccard similarity of 5-word shingles with a near-duplicate row.
        place: The row with the largest overlap; empty if there is none.
        excerpt: Words of that row from where the overlap begins.
    """

    target: Target
    num_grams: int
    num_exact: int = 0
    num_sharing: int = 0
    shared_fraction: float = 0.0
    num_near: int = 0
    jaccard: float = 0.0
    place: str = ""
    excerpt: str = ""

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Sort key: a larger overlap has a larger key."""
        return bool(self.num_exact), self.shared_fraction, self.jaccard


@dataclass(frozen=True, kw_only=True, slots=True)
class OverlapReport:
    """The outcome: one `Overlap` per problem, in the order of the problems."""

    num_rows: int
    overlaps: Sequence[Overlap]
    near_threshold: float | None


def find_overlaps(
    rows: Iterable[tuple[str, str]], targets: Sequence[Target], *, near_threshold: float | None = None
) -> OverlapReport:
    """Look for every problem in every row of a training set, in one pass.

    Args:
        rows: Place and text of each row.
        targets: The benchmarks' problems.
        near_threshold: Also count rows with at least this Jaccard similarity of 5-word shingles.

    Returns:
        The overlap of each problem.

    Raises:
        ConfigError: `near_threshold` lies outside (0, 1].
    """
    if near_threshold is not None and not 0 < near_threshold <= 1:
        raise ConfigError(f"the similarity of near-duplicates must lie in (0, 1], got {near_threshold}.")
    by_text = defaultdict[str, list[int]](list)
    for index, target in enumerate(targets):
        by_text[_plain(target.text)].append(index)
    grams = _Runs(targets, GRAM_WORDS)
    shingles = None if near_threshold is None else _Runs(targets, SHINGLE_WORDS)
    overlaps = [Overlap(target=target, num_grams=grams.counts[index]) for index, target in enumerate(targets)]
    num_rows = 0
    for place, text in rows:
        num_rows += 1
        words = _words(text)
        for index in by_text.get(_plain(text), ()):
            overlap = overlaps[index]
            overlap.num_exact += 1
            if overlap.num_exact == 1:
                overlap.shared_fraction, overlap.place, overlap.excerpt = 1.0, place, _excerpt(words, 0)
        _count_grams(words, grams, overlaps, place)
        if shingles is not None and near_threshold is not None:
            _count_near(words, shingles, overlaps, place, near_threshold)
    return OverlapReport(num_rows=num_rows, overlaps=overlaps, near_threshold=near_threshold)


class _Runs:
    """The n-grams of each problem, for lookup. Hashes are kept, because they take less memory than texts."""

    def __init__(self, targets: Sequence[Target], length: int) -> None:
        self._length = length
        self._problems = defaultdict[int, list[int]](list)
        self.counts: list[int] = []
        for index, target in enumerate(targets):
            runs = set(self._hashes(_words(target.text)))
            self.counts.append(len(runs))
            for run in runs:
                self._problems[run].append(index)

    def shared(self, words: list[str]) -> tuple[Counter[int], dict[int, int], int]:
        """What a row shares with the problems.

        Returns:
            By problem, how many of its n-grams the row has, and where in the row the first of them begins; and the
            number of distinct n-grams in the row.
        """
        counts = Counter[int]()
        first: dict[int, int] = {}
        positions: dict[int, int] = {}
        for position, run in enumerate(self._hashes(words)):
            positions.setdefault(run, position)
        for run, position in positions.items():
            for index in self._problems.get(run, ()):
                counts[index] += 1
                first.setdefault(index, position)
        return counts, first, len(positions)

    def _hashes(self, words: list[str]) -> list[int]:
        return [hash(" ".join(words[i : i + self._length])) for i in range(len(words) - self._length + 1)]


def _count_grams(words: list[str], grams: _Runs, overlaps: list[Overlap], place: str) -> None:
    counts, first, _ = grams.shared(words)
    for index, count in counts.items():
        overlap = overlaps[index]
        overlap.num_sharing += 1
        fraction = count / overlap.num_grams
        if fraction > overlap.shared_fraction:
            overlap.shared_fraction, overlap.place = fraction, place
            overlap.excerpt = _excerpt(words, first[index])


def _count_near(words: list[str], shingles: _Runs, overlaps: list[Overlap], place: str, threshold: float) -> None:
    counts, _, num_shingles = shingles.shared(words)
    for index, count in counts.items():
        jaccard = count / (shingles.counts[index] + num_shingles - count)
        if jaccard < threshold:
            continue
        overlap = overlaps[index]
        overlap.num_near += 1
        if jaccard > overlap.jaccard and not (overlap.num_exact or overlap.num_sharing):
            overlap.place, overlap.excerpt = place, _excerpt(words, 0)
        overlap.jaccard = max(overlap.jaccard, jaccard)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _excerpt(words: list[str], start: int) -> str:
    text = " ".join(words[start : start + _EXCERPT_CHARACTERS])
    return text if len(text) <= _EXCERPT_CHARACTERS else f"{text[:_EXCERPT_CHARACTERS]}..."
