"""Time to the first output and to the first error of commands, as a ratio to a bare import of TRL.

    python benchmarks/startup.py [--rounds 3] [--out startup.json]

The ratio shows, on any machine, what a command adds to the unavoidable import. Nothing is trained: each command ends
with an error, or is killed after its first output.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GAR = [sys.executable, "-m", "gar"]
BARE = [sys.executable, "-c", "from trl import GRPOConfig, GRPOTrainer"]
COMMANDS = {
    "gar --help": ["--help"],
    "gar train --help": ["train", "--help"],
    "gar train, first output": ["train", "--preset", "demo"],
    "unknown flag": ["train", "--preset", "demo", "--reward.bta", "1"],
    "wrong type for TRL": ["train", "--preset", "demo", "--trl.max_steps", "abc"],
    "missing file": ["train", "--preset", "demo", "--data.source", "missing.jsonl"],
    "missing model": ["train", "--preset", "demo", "--model.path", "Qwen/no-such-model"],
    "score, missing file": ["score", "embedded", "missing.jsonl"],
}


def first_output_seconds(command: list[str], folder: str) -> float:
    """Seconds until a command writes its first line, on either stream, or ends. It is then killed."""
    start = time.perf_counter()
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=folder, env=environment, **streams) as job:
        assert job.stdout is not None
        job.stdout.readline()
        seconds = time.perf_counter() - start
        job.kill()
    return seconds


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of each command, and their ratio to the bare import. The commands take turns in each round."""
    times: dict[str, list[float]] = {name: [] for name in ("bare import of TRL", *COMMANDS)}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds + 1):
            for name in times:
                command = [*GAR, *COMMANDS[name]] if name in COMMANDS else BARE
                times[name].append(first_output_seconds(command, folder))
        if left := sorted(path.name for path in Path(folder).iterdir()):
            raise SystemExit(f"left behind: {', '.join(left)}")
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}  # the first round warms caches
    bare = medians["bare import of TRL"]
    return {name: {"seconds": seconds, "ratio": seconds / bare} for name, seconds in medians.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each command (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    options = parser.parse_args()
    result = measure(options.rounds)
    for name, numbers in result.items():
        print(f"{name:<26} {numbers['seconds']:6.2f} s  {numbers['ratio']:6.2f}")
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
