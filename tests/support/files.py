"""Small files that tests write, and a disk that is full."""

import json
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_jsonl(path: Path, rows: Iterable[object]) -> str:
    """Write a line for each row, and give the path. Text is written as it stands, for lines that are bad."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@contextmanager
def full_disk(size: int = 100_000) -> Iterator[None]:
    """No file grows beyond `size` bytes: the nearest to a full disk that needs no root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
