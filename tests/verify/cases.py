"""The table of cases `cases.tsv`: a gold answer, an answer or a whole response, and its verdict."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("cases.tsv")
_CODE = re.compile("<U[+]([0-9A-F]{4,6})>")  # a character that a reader would not see


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One line. `format` is "answer" for an answer that is extracted already, else the format of a response."""

    verdict: str
    format: str
    gold: str
    answer: str
    problem: str
    why: str


def read_cases(path: Path = TABLE) -> list[Case]:
    """All cases of a table, in its order. A line break stands in it as `⏎`."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Case(**{name: _plain(text) for name, text in row.items()}) for row in rows]


def _plain(text: str) -> str:
    return _CODE.sub(lambda code: chr(int(code[1], 16)), text.replace("⏎", "\n"))
