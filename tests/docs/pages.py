"""The pages a user reads, and the commands they show."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "benchmarks/README.md")),
    *sorted([*DOCS.rglob("*.md"), *(ROOT / "paper").rglob("*.md")]),
]

MARK = re.compile(r"\bneeds? (a GPU|GPUs|a network|several machines)\b", re.IGNORECASE)
"""Beside a command, or in the remark above it: the test cannot run it."""
PAGE_MARK = re.compile(r"commands on this page " + MARK.pattern[2:], re.IGNORECASE)
"""Anywhere on a page: the test can run none of its commands."""

_PROGRAMS = "gar|python|make|pytest|accelerate|torchrun|srun|pip|apt-get"
_COMMAND = re.compile(rf"(?:\$ )?((?:[A-Z_]+=\S+ )*(?:{_PROGRAMS}) \S.*)")
_INLINE = re.compile(rf"`((?:{_PROGRAMS}) [^`]+)`")
_REMARK = re.compile(r"\s+# .*$")


class Command(NamedTuple):
    """A command as a page shows it. `inline` ones are in a sentence, and may be no more than a name."""

    page: str
    text: str
    inline: bool
    marked: bool


def shown_commands(path: Path) -> Iterator[Command]:
    """Every command in the code blocks and sentences of a page, continued lines put together."""
    page, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    page_marked = bool(PAGE_MARK.search(" ".join(text.split())))
    above, fenced = "", False
    for line in re.sub(r" *\\\n *", " ", text).splitlines():
        fenced ^= line.startswith("```")
        if fenced or line.startswith("    "):
            remark, above = above, line if line.lstrip().startswith("#") else ""
            if found := _COMMAND.fullmatch(line.strip()):
                marked = page_marked or bool(MARK.search(line) or MARK.search(remark))
                yield Command(page, _REMARK.sub("", found[1]), inline=False, marked=marked)
        for found in () if fenced else _INLINE.finditer(line):
            yield Command(page, found[1], inline=True, marked=page_marked or bool(MARK.search(line)))


def python_blocks(path: Path) -> list[str]:
    """The code of a page's Python blocks."""
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def outputs_of(notebook: Path) -> list[Any]:
    """Run the code cells of a notebook in one namespace. Returns what they print and show."""
    execute = runpy.run_path(str(ROOT / "scripts" / "execute_notebooks.py"))["execute"]
    done = execute(json.loads(notebook.read_text(encoding="utf-8")), notebook.name)
    return [output for cell in done["cells"] for output in cell.get("outputs", [])]
