"""Small files that tests write."""

import json
from collections.abc import Iterable
from pathlib import Path


def write_jsonl(path: Path, rows: Iterable[object]) -> str:
    """Write a line for each row, and give the path. Text is written as it stands, for lines that are bad."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)
