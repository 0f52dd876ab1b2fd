"""`gar eval audit`: where graders disagree about responses, side by side."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from pydantic import Field
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gar.cli.arguments import parse
from gar.records.files import atomic_file, json_text
from gar.settings import Settings
from gar.types import Status

if TYPE_CHECKING:
    from gar.evaluation.audit import AuditedSample

_CELL_CHARACTERS = 60

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Where graders disagree about graded responses:
  gar eval audit FOLDER|FILE [--out CASES.jsonl]

  FOLDER       an evaluation that gar eval score has graded
  FILE         .jsonl or .parquet: prompt, response, answer, status, verified
  graders      ours, as recorded and today; math-verify; equal text
  CASES        every response that deserves a look, in full
"""


class _Arguments(Settings):
    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER|FILE")]
    """The graded responses."""
    examples: Annotated[int, Field(ge=0)] = 5
    """Examples of each kind to show."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="CASES.jsonl")] = None
    """Write every response that deserves a look, in full, to this file."""
    num_workers: Annotated[int, Field(ge=1)] = 2
    """Processes that run math-verify."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 5.0
    """math-verify's limit for each response."""


def main(arguments: list[str]) -> int:
    """Run `gar eval audit`. The exit status is 0 whether graders disagree or not."""
    settings = parse(_Arguments, arguments, prog="gar eval audit", description=_DESCRIPTION)
    from gar.evaluation.audit import KINDS, audited, read_samples

    agreement = Counter[tuple[Status, Status | None]]()
    kinds = Counter[str]()
    shown: dict[str, list[AuditedSample]] = {kind: [] for kind in KINDS}
    samples = read_samples(settings.path)
    with nullcontext() if settings.out is None else atomic_file(settings.out) as file:
        for case in audited(samples, num_workers=settings.num_workers, timeout_seconds=settings.timeout_seconds):
            agreement[case.sample.status, case.math_verify] += 1
            kinds.update(case.kinds)
            for kind in case.kinds:
                shown[kind] += [case] if len(shown[kind]) < settings.examples else []
            if case.kinds and file is not None:
                file.write(_line(case))
    console = Console(highlight=False)
    console.print(_agreement_table(agreement))
    for kind, meaning in KINDS.items():
        console.print(f"\n{kinds[kind]:,} {meaning}", style="bold" if kinds[kind] else None, markup=False)
        if shown[kind]:
            console.print(_case_table(shown[kind]))
    if settings.out is not None:
        console.print(f"\nCases    {settings.out}", soft_wrap=True, markup=False)
    return 0


def _line(case: "AuditedSample") -> bytes:
    others = {"now": case.now, "math_verify": case.math_verify, "same_text": case.same_text}
    return json_text({"kind": case.kind, **dataclasses.asdict(case.sample), **others}).encode() + b"\n"


def _agreement_table(counts: "Counter[tuple[Status, Status | None]]") -> Table:
    """Our status by math-verify's, without empty rows and columns."""
    others = [status for status in (*Status, None) if any(other is status for _, other in counts)]
    table = Table(title=f"{counts.total():,} responses", title_justify="left")
    table.add_column("ours, by math-verify")
    for other in others:
        table.add_column("choices" if other is None else other, justify="right")
    for status in Status:
        if any(counts[status, other] for other in others):
            table.add_row(status, *(f"{counts[status, other]:,}" for other in others))
    return table


def _case_table(cases: "Sequence[AuditedSample]") -> Table:
    table = Table()
    for heading in ("response", "gold", "answer", "ours", "now", "math-verify", "text", "detail"):
        table.add_column(heading, overflow="fold")
    for case in cases:
        sample = case.sample
        table.add_row(
            escape(sample.place),
            _cell(sample.gold),
            _cell("-" if sample.answer is None else sample.answer),
            sample.status,
            case.now or "-",
            case.math_verify or "-",
            "same" if case.same_text else "differs",
            _cell(sample.detail),
        )
    return table


def _cell(text: str) -> str:
    """One line, without control characters, short enough for a column."""
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))
    return escape(line if len(line) <= _CELL_CHARACTERS else f"{line[:_CELL_CHARACTERS]}...")
