"""A stand-in for `python -m gar.comparison.cell PARENT CONFIG.yaml` that starts fast: it puts a prepared run in place.

Seed 12 fails the first time, 13 always. 14 is killed. 15 and 17 sleep the first time, until they are interrupted. 17
ends with its parent, too.
"""

import os
import re
import signal
import sys
import time
from pathlib import Path

from gar.errors import LockedError
from gar.records.lock import writer_lock

LOCKED = 75


def main(parent: str, source: str) -> int:
    path = Path(source)
    try:
        with writer_lock(path):
            return 0 if (path.with_suffix("") / "result.json").exists() else stand_in(path.parent, path.stem, parent)
    except LockedError:
        return LOCKED


def stand_in(folder: Path, name: str, parent: str) -> int:
    with open(folder / "order.txt", "a") as file:
        file.write(f"{name} {os.environ['OMP_NUM_THREADS']} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
    method, seed = re.fullmatch(r"(.+)-seed-(\d+)-\w+", name).groups()
    first = folder / f"{name}.first"
    if seed == "12" and not first.exists():
        first.touch()
        return 1
    if seed == "13" and method == "grpo":
        print("this line and\nthe next one", file=sys.stderr)
        return 3
    if seed == "14":
        os.kill(os.getpid(), signal.SIGKILL)
    asleep = folder / f"{name}.asleep"
    if seed in ("15", "17") and not asleep.exists():
        if seed == "17":
            from gar.comparison.cell import _die_with_parent  # takes seconds

            _die_with_parent(int(parent))
        asleep.write_text(str(os.getpid()))
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            (folder / f"{name}.interrupted").touch()
            return 130
    time.sleep(0.1)
    Path("prepared", name).rename(folder / name)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(*sys.argv[1:]))
