"""`gar eval audit`: where graders disagree about responses, side by side."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from pydantic import Field
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gar.records.files import atomic_file, json_text
from gar.settings import Settings
from gar.types import Status

if TYPE_CHECKING:
    from gar.evaluation.audit import AuditedSample

_CELL_CHARACTERS = 60
_CHANGED = "changed"

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Where graders disagree about graded responses:
  gar eval audit FOLDER|FILE [--out CASES.jsonl]

  FOLDER       an evaluation that gar eval score has graded
  FILE         .jsonl or .parquet: prompt, response, answer, status, verified
  graders      ours, as it stands there, and as it is today; plain math-verify; equal text
  CASES        every response that deserves a look, in full
"""


class _Arguments(Settings):
    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER|FILE")]
    """The graded responses."""
    examples: Annotated[int, Field(ge=0)] = 5
    """Show so many of each kind."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="CASES.jsonl")] = None
    """Write every response that deserves a look, in full, to this file."""
    num_workers: Annotated[int, Field(ge=1)] = 2
    """Processes that run math-verify."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 5.0
    """math-verify's limit for each response."""


def main(arguments: list[str]) -> int:
    """Run `gar eval audit`.

    Returns:
        0. Disagreements are no error: they are what was asked for.

    Raises:
        GarError: Anything that keeps the command from its work; its text is for the user.
    """
    settings = tyro.cli(_Arguments, args=arguments, prog="gar eval audit", description=_DESCRIPTION)
    from gar.evaluation.audit import KINDS, audited, read_samples

    sections = {**KINDS, _CHANGED: "right or not right as graded, and the opposite by the rules of this version"}

    counts = Counter[tuple[Status, Status | None]]()
    seen: dict[str, list[AuditedSample]] = {kind: [] for kind in sections}
    kinds = Counter[str]()

    graded = audited(
        read_samples(settings.path), num_workers=settings.num_workers, timeout_seconds=settings.timeout_seconds
    )

    def cases() -> "Iterable[AuditedSample]":
        for case in graded:
            counts[case.sample.status, case.math_verify] += 1
            names: list[str] = [name for name in (case.kind, _CHANGED if case.changed else None) if name]
            for name in names:
                kinds[name] += 1
                if len(seen[name]) < settings.examples:
                    seen[name].append(case)
            if names:
                yield case

    _write(cases(), settings.out)
    console = Console(highlight=False)
    console.print(_agreement_table(counts))
    for kind, meaning in sections.items():
        console.print(f"\n{kinds[kind]:,} {meaning}", style="bold" if kinds[kind] else None, markup=False)
        if seen[kind]:
            console.print(_case_table(seen[kind]))
    if settings.out is not None:
        console.print(f"\nCases    {settings.out}", soft_wrap=True, markup=False)
    return 0


def _write(cases: "Iterable[AuditedSample]", out: Path | None) -> None:
    """Go through all cases; write them if there is a file for them."""
    if out is None:
        for _ in cases:
            pass
        return
    with atomic_file(out) as file:
        for case in cases:
            file.write(json_text(_line(case)).encode() + b"\n")


def _line(case: "AuditedSample") -> dict[str, Any]:
    sample = dataclasses.asdict(case.sample)
    others = {"now": case.now, "math_verify": case.math_verify, "same_text": case.same_text}
    return {"kind": case.kind, **sample, **others}


def _agreement_table(counts: "Counter[tuple[Status, Status | None]]") -> Table:
    """Our status by math-verify's; only columns and rows that hold something."""
    others = [status for status in (*Status, None) if any(other is status for _, other in counts)]
    table = Table(title=f"{counts.total():,} responses", title_justify="left")
    table.add_column("ours, by math-verify")
    for other in others:
        table.add_column("choices" if other is None else other, justify="right")
    for status in Status:
        if row := {other: counts[status, other] for other in others if counts[status, other]}:
            table.add_row(status, *(f"{row.get(other, 0):,}" for other in others))
    return table


def _case_table(cases: "list[AuditedSample]") -> Table:
    table = Table(show_lines=False)
    for heading in ("response", "gold", "answer", "ours", "now", "math-verify", "text", "detail"):
        table.add_column(heading, overflow="fold")
    for case in cases:
        sample = case.sample
        table.add_row(
            escape(sample.place),
            _cell(sample.gold),
            "-" if sample.answer is None else _cell(sample.answer),
            sample.status,
            "-" if case.now is None else case.now,
            "-" if case.math_verify is None else case.math_verify,
            "same" if case.same_text else "differs",
            _cell(sample.detail),
        )
    return table


def _cell(text: str) -> str:
    """One line, without control characters, short enough for a column."""
    line = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))
    return escape(line if len(line) <= _CELL_CHARACTERS else f"{line[:_CELL_CHARACTERS]}...")
