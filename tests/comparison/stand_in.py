"""A stand-in for `python -m gar train CONFIG.yaml --resume-if-exists`, fast: it puts a prepared run in place.

Seed 13 fails. 14 is killed. 15 sleeps until it is interrupted or its parent ends.
"""

import os
import re
import signal
import sys
import time
from pathlib import Path


def main(command: str, source: str, flag: str) -> int:
    assert (command, flag) == ("train", "--resume-if-exists")
    folder, name = Path(source).parent, Path(source).stem
    with open(folder / "order.txt", "a") as file:
        file.write(f"{name} {os.environ['OMP_NUM_THREADS']} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
    method, seed = re.fullmatch(r"(.+)-seed-(\d+)-\w+", name).groups()
    if seed == "13" and method == "grpo":
        print("this line and\nthe next one", file=sys.stderr)
        return 3
    if seed == "14":
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == "15":
        try:
            (folder / f"{name}.asleep").write_text(str(os.getpid()))
            time.sleep(600)
        except KeyboardInterrupt:
            (folder / f"{name}.interrupted").touch()
            return 130
    time.sleep(0.1)
    Path("prepared", name).rename(folder / name)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(*sys.argv[1:]))
