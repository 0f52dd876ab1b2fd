"""Draw a seeded subset of a data source in one pass and bounded memory, and write it in our own columns.

Every prompt has a hash that depends only on its text and the seed. The subset is the usable problems with the smallest
hashes, in the order of their hashes. So it is uniform over distinct prompts, and does not depend on the order of the
rows, the file format or the reader's chunks. The first 100 problems of a subset of 1,000 are the subset of 100.
"""

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gar.data.problems import ProblemReader, distinct_problems, no_problems, prompt_hash
from gar.data.prompts import anchor_lengths, prompt_lengths
from gar.data.rows import check_suffix
from gar.data.schemas import Dropped
from gar.errors import ConfigError
from gar.records.files import atomic_file, write_parquet
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Problem

Refusal = Callable[[Problem], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """A drawn subset, and the counts of all other rows.

    `dropped` counts rows by reason over the whole source. `set_aside` counts problems that were too long or that
    repeat a prompt, but only among those that could still be drawn: the source may hold more.

    Example: Subset(problems=[...], num_rows=200_000, num_usable=180_000, dropped={"no anchor": 20_000}, set_aside={})
    """

    problems: list[Problem]
    num_rows: int
    num_usable: int
    dropped: dict[str, int]
    set_aside: dict[str, int]


def draw_subset(
    source: str,
    *,
    num_problems: int,
    seed: int,
    options: SourceSettings = DEFAULT_SOURCE,
    require_anchor: bool = True,
    refusal: Refusal | None = None,
) -> Subset:
    """Draw `num_problems` problems with distinct prompts, uniformly, in one pass over the source.

    Args:
        source: A file, a folder or a Hub id, as in `load_problems`.
        num_problems: Size of the subset; smaller if the source has fewer usable problems.
        seed: Which subset; in [0, 2**64).
        options: Columns, split and revision.
        require_anchor: Drop problems without an expert solution.
        refusal: A function that says why a problem must not be drawn, or "". It is called only for problems that could
            still be drawn, so it may be slow. `length_refusal` makes one.

    Returns:
        The subset in the order of the draw, which is random, and the counts.

    Raises:
        ConfigError: `num_problems` or `seed` is out of range.
        DataError: A bad row, an id that two drawn problems share, or no usable problem at all.
    """
    if num_problems < 1 or not 0 <= seed < 2**64:
        raise ConfigError(f"expected num_problems >= 1 and 0 <= seed < 2**64, got {num_problems} and {seed}.")
    reader = ProblemReader(source, options)
    drawn: dict[int, tuple[str, Problem]] = {}
    worst: list[int] = []  # a heap of the negated hashes of `drawn`: the largest hash is on top
    dropped, set_aside = Counter[str](), Counter[str]()
    num_usable = 0
    for place, item in reader:
        if isinstance(item, Dropped) or (require_anchor and not item.anchors):
            dropped[item.reason if isinstance(item, Dropped) else "no anchor"] += 1
            continue
        num_usable += 1
        rank = prompt_hash(item.prompt, seed)
        if len(worst) == num_problems and rank > -worst[0]:
            continue
        reason = "prompt seen before" if rank in drawn else refusal(item) if refusal else ""
        if reason:
            set_aside[reason] += 1
            continue
        drawn[rank] = (place, item)
        if len(worst) < num_problems:
            heapq.heappush(worst, -rank)
        else:
            del drawn[-heapq.heappushpop(worst, -rank)]
    if not drawn:
        raise no_problems(source, reader.column_schema, dropped + set_aside)
    return Subset(
        problems=distinct_problems(drawn[rank] for rank in sorted(drawn)),
        num_rows=num_usable + dropped.total(),
        num_usable=num_usable,
        dropped=dict(dropped),
        set_aside=dict(set_aside),
    )


def length_refusal(tokenizer: Any, *, max_prompt_tokens: int | None, max_anchor_tokens: int | None) -> Refusal:
    """Make a function that rejects problems whose prompt or longest anchor has too many tokens; None is no limit.

    It measures the prompt of the source, without the instruction that a prompt template adds.
    """

    def refusal(problem: Problem) -> str:
        if max_prompt_tokens is not None and prompt_lengths([problem.prompt], tokenizer)[0] > max_prompt_tokens:
            return f"prompt longer than {max_prompt_tokens} tokens"
        if (
            max_anchor_tokens is not None
            and max(anchor_lengths(problem.anchors, tokenizer), default=0) > max_anchor_tokens
        ):
            return f"anchor longer than {max_anchor_tokens} tokens"
        return ""

    return refusal


def write_problems(problems: Sequence[Problem], path: Path) -> None:
    """Write problems as JSONL or Parquet with our columns `id, prompt, answer, expert_solution, source`.

    In JSONL one expert solution is text, several are an array, and none is null. In Parquet it is always a list.

    Raises:
        ConfigError: The suffix is neither `.jsonl` nor `.parquet`, or Parquet cannot hold this mixture of prompts.
        RecordError: The disk is full or the folder cannot be written. An older file of that name is unchanged.
    """
    check_suffix(path)
    if path.suffix == ".jsonl":
        write_json_lines(map(problem_row, problems), path)
    else:
        write_parquet(path, _table(problems))


def write_json_lines(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as JSON Lines, whole or not at all.

    Raises:
        RecordError: The file cannot be written.
    """
    with atomic_file(path) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def problem_row(problem: Problem) -> dict[str, Any]:
    """A line of JSONL in our own columns."""
    row = _row(problem)
    solutions = row["expert_solution"]
    return row | {"expert_solution": solutions if len(solutions) > 1 else next(iter(solutions), None)}


def _table(problems: Sequence[Problem]) -> pa.Table:
    is_text = {isinstance(problem.prompt, str) for problem in problems}
    if len(is_text) > 1:
        raise ConfigError("some prompts are text and some chat messages, which Parquet cannot hold; write .jsonl.")
    messages = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
    columns = {"id": pa.string(), "prompt": messages if is_text == {False} else pa.string(), "answer": pa.string()}
    columns |= {"expert_solution": pa.list_(pa.string()), "source": pa.string()}
    return pa.Table.from_pylist([_row(problem) for problem in problems], schema=pa.schema(columns))


def _row(problem: Problem) -> dict[str, Any]:
    return {
        "id": problem.id,
        "prompt": problem.prompt,
        "answer": problem.answer,
        "expert_solution": [anchor.text for anchor in problem.anchors],
        "source": problem.source,
    }
