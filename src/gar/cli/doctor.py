"""`gar doctor`: one table of installed versions, devices and missing packages."""

import argparse

from rich.table import Table
from rich.text import Text

from gar import __version__
from gar.cli.console import show
from gar.doctor import examine

_STYLES = {"ok": "green", "missing": "yellow", "wrong": "bold red"}


def main(arguments: list[str]) -> int:
    """Run `gar doctor`. The exit status is 1 if a required package is wrong, else 0."""
    argparse.ArgumentParser(
        prog="gar doctor",
        description="Show versions, devices and engines, and the command that adds what is missing. Exit status 1 "
        "if something required is wrong, else 0.",
    ).parse_args(arguments)
    items = examine()
    table = Table("", "", "found", "what to do", title=f"gar {__version__}", title_justify="left", box=None)
    for item in items:
        table.add_row(
            Text(item.status, style=_STYLES[item.status]), Text(item.name), Text(item.found), Text(item.advice)
        )
    show(table)
    wrong = [item for item in items if item.status == "wrong"]
    if wrong:
        show("Not ready:", style="bold red")
        for item in wrong:
            show(f"  {item.name}: {item.found}")
        return 1
    show("Ready. Start with: gar train --preset demo", style="bold green")
    return 0
