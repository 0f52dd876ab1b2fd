"""`gar eval contamination`: which problems of a benchmark stand in a training set."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gar.data.layouts import Dropped
from gar.data.problems import ProblemReader, SourceOptions, prompt_text
from gar.records.files import json_text, write_atomic

if TYPE_CHECKING:
    from gar.evaluation.contamination import Overlap, OverlapReport, Target

_NUM_EXAMPLES = 5
_TEXT_CHARACTERS = 200

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Look for the problems of benchmarks in a training set:
  gar eval contamination TRAIN --benchmark NAME[,NAME] [--near 0.7]

  TRAIN        a .jsonl or .parquet file, a folder, or a Hub id; streamed
  NAME         a name, NAME=FILE, or a file, as for gar eval generate
  exact        the same text but for case and white space
  13-grams     runs of 13 words; a problem of fewer is found exact alone
  exit status  1 where a row holds a whole problem
"""


def main(arguments: list[str]) -> int:
    """Run `gar eval contamination`.

    Returns:
        0, or 1 where a row of the training set holds a whole problem.

    Raises:
        GarError: Anything that keeps the command from its work; its text is for the user.
    """
    return tyro.cli(_contamination, args=arguments, prog="gar eval contamination", description=_DESCRIPTION)


_AS_THEY_ARE = SourceOptions()


def _contamination(
    train: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TRAIN")],
    benchmark: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME[,NAME]")],
    near: float | None = None,
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    reading: tyro.conf.OmitArgPrefixes[SourceOptions] = _AS_THEY_ARE,
) -> int:
    """Look, print, and write.

    Args:
        train: The training set.
        benchmark: What to look for.
        near: Also count near-duplicates of at least this similarity, 0 to 1. Needs datasketch, and takes longer.
        json: Also write what was found of every problem to this file.
        reading: How to read the training set.
    """
    from gar.evaluation.contamination import find_overlaps

    targets = _targets([spec for text in benchmark for spec in text.split(",") if spec])
    rows = _TrainingTexts(train, reading)
    report = find_overlaps(rows, targets, near_threshold=near)
    _print_report(report, train, rows.num_dropped)
    if json is not None:
        write_atomic(json, json_text(dataclasses.asdict(report), indent=1) + "\n")
        print(f"Report   {json}")
    return int(any(overlap.shared_fraction == 1.0 for overlap in report.overlaps))


def _targets(specs: Sequence[str]) -> "list[Target]":
    from gar.evaluation.benchmarks import load_benchmark
    from gar.evaluation.contamination import Target

    loaded = {spec: load_benchmark(spec) for spec in specs}
    return [
        Target(benchmark=spec.partition("=")[0], id=problem.id, text=prompt_text(problem.question))
        for spec, each in loaded.items()
        for problem in each.problems
    ]


class _TrainingTexts:
    """The prompts of a training set, one after the other; counts the rows that have none to train on."""

    def __init__(self, source: str, options: SourceOptions) -> None:
        self._reader = ProblemReader(source, options)
        self.num_dropped = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for place, item in self._reader:
            if isinstance(item, Dropped):
                self.num_dropped += 1
            else:
                yield place, prompt_text(item.prompt)


def _print_report(report: "OverlapReport", train: str, num_dropped: int) -> None:
    console = Console(highlight=False)
    console.print(f"{report.num_rows:,} rows of {train}", markup=False, soft_wrap=True)
    for benchmark in dict.fromkeys(overlap.target.benchmark for overlap in report.overlaps):
        own = [overlap for overlap in report.overlaps if overlap.target.benchmark == benchmark]
        table = Table(title=escape(benchmark), title_justify="left")
        table.add_column("problems")
        table.add_column(f"{len(own):,}", justify="right")
        for label, count in _counts(own, near=report.near_threshold).items():
            table.add_row(label, f"{count:,}")
        console.print(table)
    if num_dropped:
        console.print(f"{num_dropped:,} rows of the training set hold no problem to train on, and were not looked at.")
    worst = sorted((each for each in report.overlaps if each.place), key=lambda each: each.rank, reverse=True)
    for overlap in worst[:_NUM_EXAMPLES]:
        _print_example(overlap, console)


def _counts(overlaps: "Sequence[Overlap]", *, near: float | None) -> dict[str, int]:
    counts = {
        "with an exact copy": sum(each.num_exact > 0 for each in overlaps),
        "with all 13-grams in one row": sum(each.num_grams > 0 and each.shared_fraction == 1 for each in overlaps),
        "with half of them in one row": sum(each.shared_fraction >= 0.5 for each in overlaps if each.num_grams),
        "with any 13-gram": sum(each.num_sharing > 0 for each in overlaps),
        "too short for a 13-gram": sum(not each.num_grams for each in overlaps),
    }
    if near is not None:
        counts[f"with a near-duplicate, similarity {near:g}"] = sum(each.num_near > 0 for each in overlaps)
    return counts


def _print_example(overlap: "Overlap", console: Console) -> None:
    target = overlap.target
    found = [f"{overlap.num_exact:,} exact"] if overlap.num_exact else []
    if overlap.num_sharing:
        found.append(f"{overlap.shared_fraction:.0%} of its 13-grams, rows that share one: {overlap.num_sharing:,}")
    if overlap.num_near:
        found.append(f"similarity {overlap.jaccard:.2f}")
    text = " ".join(target.text.split())
    shown = text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}..."
    for line in (
        f"\n{target.benchmark} {target.id}: {'; '.join(found)}",
        f"  problem  {shown}",
        f"  {overlap.place}  {overlap.excerpt}",
    ):
        console.print(line, markup=False, soft_wrap=True)
