"""`gar doctor`: what this machine and this installation can do, and what is missing."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gar import __version__
from gar.cli.parser import Parser
from gar.doctor import Check, Section, examine

_STYLES = {"ok": "green", "missing": "yellow", "wrong": "bold red"}
_MAIN = ("python", "gar", "torch", "transformers", "trl", "datasets", "math-verify")


def main(arguments: list[str]) -> int:
    """Run `gar doctor`. Exit status 1 where something required is wrong, else 0."""
    parser = Parser(
        prog="gar doctor",
        description="Show versions, devices, engines and extras, what each makes possible, and what to install for the "
        "rest. Tries the embedded model and the verification of one answer. Takes seconds, needs no network.",
        epilog="ok: present and working. missing: optional and not installed. wrong: says what to do. "
        "Exit status 1 where something required is wrong, else 0.",
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where runs will go (default: runs)")
    options = parser.parse_args(arguments)
    with Console(stderr=True).status("Looking at what is installed, and trying it out ..."):
        checks = examine(options.folder)
    wrong = [check for check in checks if check.required and check.status == "wrong"]
    if options.json:
        record = {"gar": __version__, "ready": not wrong, "checks": [_json(check) for check in checks]}
        print(json.dumps(record, indent=2))
    else:
        _print(checks, wrong)
    return 1 if wrong else 0


def _json(check: Check) -> dict[str, Any]:
    """The keys of `--json`, a public format: the state is under "found"."""
    return {"found" if name == "state" else name: value for name, value in dataclasses.asdict(check).items()}


def _print(checks: Sequence[Check], wrong: Sequence[Check]) -> None:
    console = Console(highlight=False)
    for section in get_args(Section):
        if rows := [check for check in checks if check.section == section]:
            console.print(section.capitalize(), style="bold")
            console.print(_table(rows))
            console.print()
    if wrong:
        console.print("Not ready:", style="bold red")
        for check in wrong:
            console.print(f"  {check.name}: {check.state}", markup=False)
    else:
        console.print("Ready. Start with: gar train --preset demo", style="bold green")


def _table(checks: Sequence[Check]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=9)
    table.add_column(no_wrap=True, min_width=14)
    table.add_column()
    plain = [check for check in checks if check.section == "versions" and _is_plain(check)]
    for check in checks:
        if check not in plain:
            table.add_row(Text(f"  {check.status}", style=_STYLES[check.status]), Text(check.name), _details(check))
    if plain:
        versions = ", ".join(f"{check.name} {check.state}" for check in plain)
        table.add_row(Text("  ok", style=_STYLES["ok"]), "others", Text(versions))
    return table


def _is_plain(check: Check) -> bool:
    """Whether a check shares a line with others: a dependency with a good version."""
    return check.name not in _MAIN and check.status == "ok"


def _details(check: Check) -> Text:
    text = Text(check.state)
    if check.purpose:
        text.append(f" ({check.purpose})", style="dim")
    if check.advice:
        text.append(f"\n-> {check.advice}")
    return text
