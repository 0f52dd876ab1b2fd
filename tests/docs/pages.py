"""The pages a user reads, and the commands they show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "RELEASING.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "paper").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
]

PROGRAMS = ("gar", "python", "make", "pytest", "accelerate", "torchrun", "srun", "pip", "apt-get")
MARK = re.compile(r"\bneeds? (a GPU|GPUs|a network|several machines)\b", re.IGNORECASE)
"""Beside a command, or in the remark above it: it is not run as it stands."""
PAGE_MARK = re.compile(r"commands on this page " + MARK.pattern[2:], re.IGNORECASE)
"""Anywhere on a page: none of its commands is."""

_COMMAND = re.compile(rf"(?:\$ )?((?:[A-Z_]+=\S+ )*(?:{'|'.join(PROGRAMS)}) \S.*)")
_FENCE = re.compile(r"^(`{3,})(\w*)$")
_INLINE = re.compile(rf"`((?:{'|'.join(PROGRAMS)}) [^`]+)`")
_REMARK = re.compile(r"\s+# .*$")


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command as a page shows it. `inline` ones stand in a sentence, and may be no more than a name."""

    page: str
    line: int
    text: str
    inline: bool
    marked: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def shown_commands(path: Path) -> Iterator[Command]:
    """Every command in the code blocks and sentences of a page, continued lines put together."""
    page = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    page_marked = bool(PAGE_MARK.search(" ".join(text.split())))
    above = ""
    for line, code in _code_lines(text):
        remark, above = above, code if code.startswith("#") else ""
        if found := _COMMAND.fullmatch(code.strip()):
            command = _REMARK.sub("", found[1])
            marked = page_marked or bool(MARK.search(code) or MARK.search(remark))
            yield Command(page=page, line=line, text=command, inline=False, marked=marked)
    for line, prose in enumerate(text.splitlines(), start=1):
        for found in _INLINE.finditer(prose):
            marked = page_marked or bool(MARK.search(prose))
            yield Command(page=page, line=line, text=found[1], inline=True, marked=marked)


def _code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines of fenced and indented blocks; where one ends in a backslash, with the next."""
    fence, joined, start = "", "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        opening = _FENCE.match(line)
        if opening and not fence:
            fence = opening[1]
        elif line.strip() == fence:
            fence = ""
        elif fence or line.startswith("    "):
            start = start if joined else number
            joined += line.strip()
            if joined.endswith("\\"):
                joined = joined.removesuffix("\\").rstrip() + " "
                continue
            yield start, joined
            joined = ""


def python_blocks(path: Path) -> list[str]:
    """The code of a page's Python blocks."""
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
