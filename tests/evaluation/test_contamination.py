"""`find_overlaps`: copies, shared 13-grams and near-duplicates of benchmark problems in a stream of rows."""

import random
import tracemalloc
from collections.abc import Iterator

import pytest

from gar.errors import ConfigError
from gar.evaluation.contamination import GRAM_WORDS, OverlapReport, Target, find_overlaps

# Of 21, 14 and 5 words.
LONG = "Ann has 3 red apples and Bob has 4 green pears in a box of wood; how many fruits are there?"
EDGE = "Let $n$ be an integer with $2 < n < 9$. Is $n$ ever a prime?"
SHORT = "What is 3+4*7?"
FILLER = "A train leaves the station at noon and travels for 3 hours at 60 miles an hour. How far does it go?"


def look(rows: list[str], *problems: str, near: float | None = None) -> OverlapReport:
    targets = [Target(benchmark="own", id=str(number), text=text) for number, text in enumerate(problems)]
    return find_overlaps(((f"rows:{line}", text) for line, text in enumerate(rows, 1)), targets, near_threshold=near)


def test_find_overlaps_nothing_in_common() -> None:
    report = look([FILLER] * 3, LONG, SHORT)
    assert report.num_rows == 3
    assert [(o.num_exact, o.num_sharing, o.shared_fraction, o.place) for o in report.overlaps] == [(0, 0, 0.0, "")] * 2


def test_find_overlaps_counts_exact_copies_whatever_their_case_and_spaces() -> None:
    report = look([FILLER, LONG.upper(), LONG.replace(" ", "\n "), SHORT], LONG, SHORT)
    long, short = report.overlaps
    assert (long.num_exact, long.num_sharing, long.shared_fraction, long.place) == (2, 2, 1.0, "rows:2")
    assert long.excerpt.startswith("ann has 3 red apples and bob has 4")
    assert (short.num_grams, short.num_exact, short.num_sharing, short.place) == (0, 1, 0, "rows:4")


def test_find_overlaps_short_arithmetic_differs_by_its_operators() -> None:
    (overlap,) = look(["What is 3*4+7?"], SHORT).overlaps
    assert overlap.num_exact == 0


def test_find_overlaps_a_problem_inside_a_longer_row_in_other_notation() -> None:
    row = f"{FILLER} Solve: {LONG.replace(';', ',').replace('3', '$3$')} {FILLER}"
    (overlap,) = look([row], LONG).overlaps
    assert (overlap.num_exact, overlap.num_sharing, overlap.shared_fraction) == (0, 1, 1.0)
    assert overlap.excerpt.startswith("ann has 3 red apples")


def test_find_overlaps_share_of_13_grams_by_hand() -> None:
    words = LONG.split()
    assert len(words) == 21  # 9 runs of 13 words
    (overlap,) = look([" ".join(words[:15]), " ".join(words[:14])], LONG).overlaps
    assert (overlap.num_grams, overlap.num_sharing) == (9, 2)
    assert overlap.shared_fraction == 3 / 9  # the first row has 3 of them, the second 2
    assert overlap.place == "rows:1"
    assert look([" ".join(words[:12])], LONG).overlaps[0].num_sharing == 0


def test_find_overlaps_13_words_are_one_gram() -> None:
    assert GRAM_WORDS == 13
    (overlap,) = look([f"Now {EDGE} Yes."], EDGE).overlaps
    assert (overlap.num_grams, overlap.shared_fraction) == (2, 1.0)
    assert look([], " ".join("abcdefghijklm")).overlaps[0].num_grams == 1
    assert look([], " ".join("abcdefghijkl")).overlaps[0].num_grams == 0


def test_find_overlaps_equal_problems_are_both_found() -> None:
    assert [overlap.num_exact for overlap in look([LONG], LONG, LONG).overlaps] == [1, 1]


def test_find_overlaps_holds_no_rows() -> None:
    def rows() -> Iterator[tuple[str, str]]:
        for number in range(4_000):
            yield f"rows:{number}", f"{number} {FILLER} {LONG}"

    target = Target(benchmark="own", id="0", text=LONG)
    tracemalloc.start()
    try:
        report = find_overlaps(rows(), [target])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.overlaps[0].num_sharing == 4_000
    assert peak < 200_000  # the rows are 1 MB


def test_find_overlaps_near_duplicates_have_their_exact_similarity() -> None:
    other = LONG.replace("fruits are there", "are there now")
    words, changed = LONG.lower().replace(";", "").strip("?").split(), other.lower().replace(";", "").strip("?").split()
    shingles, others = ({tuple(w[i : i + 5]) for i in range(len(w) - 4)} for w in (words, changed))
    expected = len(shingles & others) / len(shingles | others)
    assert 0.5 < expected < 0.8
    (overlap,) = look([FILLER, other, LONG], LONG, near=0.5).overlaps
    assert (overlap.num_near, overlap.jaccard) == (2, 1.0)
    (overlap,) = look([FILLER, other], LONG, near=0.5).overlaps
    assert (overlap.num_near, overlap.jaccard) == (1, pytest.approx(expected))
    (overlap,) = look([FILLER, other], LONG, near=0.9).overlaps
    assert overlap.num_near == 0
    (overlap,) = look([SHORT], SHORT, near=0.5).overlaps
    assert overlap.num_near == 1


def test_find_overlaps_misses_no_near_duplicate() -> None:
    generator = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    problems = [[generator.choice(words) for _ in range(generator.randint(4, 40))] for _ in range(30)]
    rows = [list(generator.choice(problems)) for _ in range(300)]
    for row in rows:
        for _ in range(generator.randint(0, 6)):
            row[generator.randrange(len(row))] = generator.choice(words)

    def similarity(row: list[str], problem: list[str]) -> float:
        ours, theirs = ({tuple(w[i : i + 5]) for i in range(len(w) - 4)} for w in (row, problem))
        return len(ours & theirs) / max(1, len(ours | theirs))

    report = look([" ".join(row) for row in rows], *(" ".join(problem) for problem in problems), near=0.6)
    expected = [sum(similarity(row, problem) >= 0.6 for row in rows) for problem in problems]
    assert sum(expected) > 50
    assert [overlap.num_near for overlap in report.overlaps] == expected


def test_find_overlaps_near_duplicates_without_a_13_gram_in_common() -> None:
    words = list("abcdefghijklmnopqrstuvwxyz")
    changed = [*words[:12], "0", *words[13:24], "0", *words[25:]]
    (overlap,) = look([" ".join(changed)], " ".join(words), near=0.4).overlaps
    assert (overlap.num_sharing, overlap.num_near, overlap.place) == (0, 1, "rows:1")


@pytest.mark.parametrize("near", [0.0, -1.0, 1.5])
def test_find_overlaps_refuses_a_similarity_out_of_range(near: float) -> None:
    with pytest.raises(ConfigError, match=rf"must lie in \(0, 1\], got {near}"):
        look([], LONG, near=near)


def test_find_overlaps_names_the_nearest_duplicate_and_not_the_first():
    words = [f"w{i}" for i in range(12)]  # too short for a 13-gram
    target = Target(benchmark="set", id="1", text=" ".join(words))
    rows = [("far", " ".join([*words[:9], "x", "y", "z"])), ("near", " ".join([*words[:11], "x"]))]
    (overlap,) = find_overlaps(rows, [target], near_threshold=0.3).overlaps
    assert (overlap.num_near, overlap.place) == (2, "near")
    assert overlap.excerpt.endswith("w10 x")
