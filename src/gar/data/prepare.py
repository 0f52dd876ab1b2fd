"""Draw a seeded subset of a data source in one pass, and write problems in our own columns.

Every prompt has a hash that depends only on its text and the seed. The subset is the usable problems with the smallest
hashes, in the order of their hashes. So it is uniform over distinct prompts, and does not depend on the order of the
rows or the file format. The first 100 problems of a subset of 1,000 are the subset of 100.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.data.problems import check_ids, iter_problems, no_problems, prompt_hash
from gar.data.rows import check_suffix
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """A drawn subset, the number of usable problems with distinct prompts, and the other rows by reason."""

    problems: list[Problem]
    num_usable: int
    dropped: Mapping[str, int]


def draw_subset(
    source: str,
    *,
    num_problems: int,
    seed: int,
    options: SourceSettings = DEFAULT_SOURCE,
    require_anchor: bool = True,
) -> Subset:
    """Draw `num_problems` problems with distinct prompts, uniformly. Memory holds them, and a hash of every prompt.

    `seed` lies in [0, 2**64). `require_anchor` drops problems without an expert solution. A `DataError` names a bad
    row, an id that two drawn problems share, or a source without any usable problem.
    """
    dropped = Counter[str]()
    ranks = set[int]()
    drawn: list[tuple[int, str, Problem]] = []  # a heap with the largest rank first, negated

    def drop(place: str, reason: str) -> None:
        dropped[reason] += 1

    # Keep the problems with the smallest ranks. A rank is a hash of the prompt, so equal prompts have one rank.
    for place, problem in iter_problems(source, options, on_drop=drop):
        rank = prompt_hash(problem.prompt, seed)
        if require_anchor and not problem.anchors:
            dropped["no expert solution"] += 1
        elif rank in ranks:
            dropped["repeated prompt"] += 1
        else:
            ranks.add(rank)
            heapq.heappush(drawn, (-rank, place, problem))
            if len(drawn) > num_problems:
                heapq.heappop(drawn)
    if not drawn:
        raise no_problems(source, options, dropped)
    drawn.sort(reverse=True)  # ranks are negated: the smallest comes first
    problems = [problem for *_, problem in drawn]
    check_ids((place, problem.id) for _, place, problem in drawn)
    return Subset(problems=problems, num_usable=len(ranks), dropped=dropped)


def write_problems(problems: Sequence[Problem], path: Path) -> None:
    """Write problems as `.jsonl` with our columns `id, prompt, answer, expert_solution, source`.

    One expert solution is text, several are an array, and none is null.
    """
    check_suffix(path, ".jsonl")
    write_json_lines(map(problem_row, problems), path)


def write_json_lines(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as JSON Lines, whole or not at all."""
    from gar.records.files import atomic_file  # with pyarrow, which `gar data check` of text files does without

    with atomic_file(path) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def problem_row(problem: Problem) -> dict[str, Any]:
    """A line of JSONL in our own columns."""
    solutions = [anchor.text for anchor in problem.anchors]
    return {
        "id": problem.id,
        "prompt": problem.prompt,
        "answer": problem.answer,
        "expert_solution": solutions if len(solutions) > 1 else next(iter(solutions), None),
        "source": problem.source,
    }
