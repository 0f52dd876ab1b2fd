"""Finds problems of a benchmark in a training set: exact copies, shared 13-grams, and near-duplicates.

The training set is streamed: memory holds the benchmarks' problems and their overlaps, never the training set. An
n-gram of 13 words follows Brown et al. 2020, "Language Models are Few-Shot Learners", appendix C; words are runs of
letters, digits and underscores in lower case, so that LaTeX, spaces and punctuation do not hide a copy.
"""

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gar.errors import ConfigError

GRAM_WORDS = 13
SHINGLE_WORDS = 5
_NUM_PERMUTATIONS = 128
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
        num_grams: Different 13-grams of the problem; 0 for one of fewer words, which only an exact copy shows.
        num_exact: Rows with the same text, apart from case and white space.
        num_sharing: Rows that share a 13-gram with the problem.
        shared_fraction: Largest share of its 13-grams in a single row; 1 where a row contains all of it.
        num_near: Near-duplicate rows; 0 where they were not looked for.
        jaccard: Largest Jaccard similarity of 5-word shingles with a near-duplicate row.
        place: The row with most in common, empty where no row has anything.
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
        """The worst first when sorted downwards."""
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
        near_threshold: Also count rows with at least this Jaccard similarity of 5-word shingles. Needs the extra
            `contamination` (datasketch), and takes several times as long. MinHash finds candidates, so that a few
            pairs near the threshold may be missed; the similarity of those it finds is exact.

    Returns:
        The overlap of each problem.

    Raises:
        ConfigError: `near_threshold` lies outside (0, 1], or datasketch is not installed.
    """
    near = None if near_threshold is None else _NearDuplicates(targets, near_threshold)
    overlaps = [Overlap(target=target, num_grams=len(set(_grams(_words(target.text))))) for target in targets]
    by_text, by_gram = defaultdict[str, list[int]](list), defaultdict[int, list[int]](list)
    for index, target in enumerate(targets):
        by_text[_plain(target.text)].append(index)
        for gram in set(_grams(_words(target.text))):
            by_gram[gram].append(index)
    num_rows = 0
    for place, text in rows:
        num_rows += 1
        words = _words(text)
        for index in by_text.get(_plain(text), ()):
            overlap = overlaps[index]
            overlap.num_exact += 1
            if overlap.num_exact == 1:
                overlap.shared_fraction, overlap.place, overlap.excerpt = 1.0, place, _excerpt(words, 0)
        _count_grams(words, by_gram, overlaps, place)
        if near is not None:
            near.count(words, overlaps, place)
    return OverlapReport(num_rows=num_rows, overlaps=overlaps, near_threshold=near_threshold)


def _count_grams(words: list[str], by_gram: dict[int, list[int]], overlaps: list[Overlap], place: str) -> None:
    shared: dict[int, set[int]] = defaultdict(set)
    first: dict[int, int] = {}
    for position, gram in enumerate(_grams(words)):
        for index in by_gram.get(gram, ()):
            shared[index].add(gram)
            first.setdefault(index, position)
    for index, grams in shared.items():
        overlap = overlaps[index]
        overlap.num_sharing += 1
        fraction = len(grams) / overlap.num_grams
        if fraction > overlap.shared_fraction:
            overlap.shared_fraction, overlap.place = fraction, place
            overlap.excerpt = _excerpt(words, first[index])


class _NearDuplicates:
    """Candidates by MinHash and locality-sensitive hashing, then their exact similarity."""

    def __init__(self, targets: Sequence[Target], threshold: float) -> None:
        if not 0 < threshold <= 1:
            raise ConfigError(f"the similarity of near-duplicates must lie in (0, 1], got {threshold}.")
        try:
            datasketch = importlib.import_module("datasketch")
        except ImportError as error:
            raise ConfigError(
                "near-duplicates need the package datasketch, which is not installed: pip install "
                "'gar-rl[contamination]'. Exact copies and shared 13-grams need nothing."
            ) from error
        self._sketch = lambda: datasketch.MinHash(num_perm=_NUM_PERMUTATIONS)
        self._threshold = threshold
        self._shingles = [_shingles(_words(target.text)) for target in targets]
        self._lsh = datasketch.MinHashLSH(threshold=threshold, num_perm=_NUM_PERMUTATIONS)
        for index, shingles in enumerate(self._shingles):
            if shingles:
                self._lsh.insert(index, self._sketch_of(shingles))

    def count(self, words: list[str], overlaps: list[Overlap], place: str) -> None:
        """Count one row for the problems that it nearly duplicates."""
        shingles = _shingles(words)
        if not shingles:
            return
        for index in self._lsh.query(self._sketch_of(shingles)):
            overlap, target = overlaps[index], self._shingles[index]
            jaccard = len(target & shingles) / len(target | shingles)
            if jaccard < self._threshold:
                continue
            overlap.num_near += 1
            if not overlap.place:
                overlap.place, overlap.excerpt = place, _excerpt(words, 0)
            overlap.jaccard = max(overlap.jaccard, jaccard)

    def _sketch_of(self, shingles: set[str]) -> Any:
        sketch = self._sketch()
        sketch.update_batch([shingle.encode() for shingle in shingles])
        return sketch


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _grams(words: list[str]) -> list[int]:
    """Hashes of all 13-grams. Kept instead of their text, which would take several times the memory."""
    return [hash(" ".join(words[i : i + GRAM_WORDS])) for i in range(len(words) - GRAM_WORDS + 1)]


def _shingles(words: list[str]) -> set[str]:
    return {" ".join(words[i : i + SHINGLE_WORDS]) for i in range(len(words) - SHINGLE_WORDS + 1)}


def _excerpt(words: list[str], start: int) -> str:
    text = " ".join(words[start : start + _EXCERPT_CHARACTERS])
    return text if len(text) <= _EXCERPT_CHARACTERS else f"{text[:_EXCERPT_CHARACTERS]}..."
