"""`gar eval contamination`: which problems of a benchmark occur in a training set."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gar.cli.arguments import parse
from gar.data.layouts import Dropped
from gar.data.problems import ProblemReader, SourceOptions, prompt_text
from gar.records.files import json_text, write_atomic

if TYPE_CHECKING:
    from gar.evaluation.contamination import Overlap

_NUM_EXAMPLES = 5
_TEXT_CHARACTERS = 200

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Look for the problems of benchmarks in a training set:
  gar eval contamination TRAIN --benchmark NAME[,NAME] [--near 0.7]

  TRAIN        a .jsonl or .parquet file, a folder, or a Hub id; streamed
  NAME         a name, NAME=FILE, or a file, as for gar eval generate
  exact        the same text except for case and white space
  13-grams     runs of 13 words; shorter problems are only found exact
  exit status  1 where a row holds a whole problem
"""
_DETECTED = SourceOptions()


def main(arguments: list[str]) -> int:
    """Run `gar eval contamination`. The exit status is 1 where a row of the training set holds a whole problem."""
    return parse(_contamination, arguments, prog="gar eval contamination", description=_DESCRIPTION)


def _contamination(
    train: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TRAIN")],
    benchmark: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME[,NAME]")],
    near: float | None = None,
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    reading: tyro.conf.OmitArgPrefixes[SourceOptions] = _DETECTED,
) -> int:
    """Search a training set for problems of benchmarks, print what was found, and write it to a file.

    Args:
        train: The training set.
        benchmark: Names of the benchmarks.
        near: Also count near-duplicates of at least this similarity, 0 to 1. Jaccard, of runs of 5 words.
        json: Also write the matches of every problem to this file.
        reading: How to read the training set.
    """
    from gar.evaluation.benchmarks import load_benchmark
    from gar.evaluation.contamination import Target, find_overlaps

    targets = [
        Target(benchmark=spec.partition("=")[0], id=problem.id, text=prompt_text(problem.question))
        for spec in (spec for text in benchmark for spec in text.split(",") if spec)
        for problem in load_benchmark(spec).problems
    ]
    dropped = Counter[str]()
    report = find_overlaps(_texts(train, reading, dropped), targets, near_threshold=near)
    console = Console(highlight=False)
    console.print(f"{report.num_rows:,} rows of {train}", markup=False, soft_wrap=True)
    for name in dict.fromkeys(target.benchmark for target in targets):
        console.print(_table(name, [overlap for overlap in report.overlaps if overlap.target.benchmark == name], near))
    if num_dropped := dropped.total():
        console.print(f"{num_dropped:,} rows of the training set hold no usable problem and were skipped.")
    worst = sorted(
        (overlap for overlap in report.overlaps if overlap.place), key=lambda overlap: overlap.rank, reverse=True
    )
    for overlap in worst[:_NUM_EXAMPLES]:
        console.print(_example(overlap), markup=False, soft_wrap=True)
    if json is not None:
        write_atomic(json, json_text(dataclasses.asdict(report), indent=1) + "\n")
        print(f"Report   {json}")
    return int(any(overlap.shared_fraction == 1.0 for overlap in report.overlaps))


def _texts(source: str, options: SourceOptions, dropped: Counter[str]) -> Iterator[tuple[str, str]]:
    """Place and prompt of every row of a training set; `dropped` counts the rows that have none to train on."""
    for place, item in ProblemReader(source, options):
        if isinstance(item, Dropped):
            dropped[item.reason] += 1
        else:
            yield place, prompt_text(item.prompt)


def _table(benchmark: str, overlaps: "Sequence[Overlap]", near: float | None) -> Table:
    """Number of problems of one benchmark that occur in the training set, by kind of overlap."""
    counts = {
        "with an exact copy": sum(overlap.num_exact > 0 for overlap in overlaps),
        "with all 13-grams in one row": sum(
            overlap.num_grams > 0 and overlap.shared_fraction == 1 for overlap in overlaps
        ),
        "with half of them in one row": sum(
            overlap.shared_fraction >= 0.5 for overlap in overlaps if overlap.num_grams
        ),
        "with any 13-gram": sum(overlap.num_sharing > 0 for overlap in overlaps),
        "too short for a 13-gram": sum(not overlap.num_grams for overlap in overlaps),
    }
    if near is not None:
        counts[f"with a near-duplicate, similarity {near:g}"] = sum(overlap.num_near > 0 for overlap in overlaps)
    table = Table(title=escape(benchmark), title_justify="left")
    table.add_column("problems")
    table.add_column(f"{len(overlaps):,}", justify="right")
    for label, count in counts.items():
        table.add_row(label, f"{count:,}")
    return table


def _example(overlap: "Overlap") -> str:
    target = overlap.target
    words = [f"{overlap.num_exact:,} exact"] if overlap.num_exact else []
    if overlap.num_sharing:
        words.append(f"{overlap.shared_fraction:.0%} of its 13-grams, rows that share one: {overlap.num_sharing:,}")
    if overlap.num_near:
        words.append(f"similarity {overlap.jaccard:.2f}")
    text = " ".join(target.text.split())
    shown = text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}..."
    return (
        f"\n{target.benchmark} {target.id}: {'; '.join(words)}\n  problem  {shown}\n"
        f"  {overlap.place}  {overlap.excerpt}"
    )
