"""Stop a long run at random steps, resume it each time, and compare it with an uninterrupted one.

python -m tests.faults.long FOLDER                 3,000 steps and 30 stops, about half an hour on two cores
python -m tests.faults.long FOLDER --steps 200 --stops 4

A stop is SIGTERM or SIGKILL. CPU seconds, memory and the size of the folder are printed every 100 steps. Exits with 1
if a file of the two runs differs by more than times.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.faults.judge import contents, differences
from tests.support.processes import SECONDS, running

SETTINGS = [
    "--preset", "demo", "--preflight.mode", "off", "--trl.save_steps", "50", "--trl.learning_rate", "2e-5",
    "--trl.per_device_train_batch_size", "16", "--trl.num_generations", "4", "--trl.max_completion_length", "32",
    "--trl.num_iterations", "2", "--trl.beta", "0.02", "--evaluate.eval_steps", "250", "--evaluate.max_problems", "16",
    "--evaluate.num_samples", "2", "--evaluate.pass_at_k", "1", "2", "--records.name", "run", "--resume-if-exists",
]  # fmt: skip
PERIOD = 100
"""Steps between two lines about memory."""
MARGIN = 20
"""Steps at the end without a stop, so that no run ends before its signal."""
DAY = 86_400.0
MIB = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """A signal after `step` steps and `delay_seconds`, which end somewhere in the next steps."""

    step: int
    delay_seconds: float
    signal: signal.Signals


def plan(steps: int, stops: int, seed: int) -> list[Stop]:
    """Stops in the order of steps. The same for the same seed."""
    draw = random.Random(seed)
    return [
        Stop(step=step, delay_seconds=draw.uniform(0, 1), signal=draw.choice([signal.SIGTERM, signal.SIGKILL]))
        for step in sorted(draw.sample(range(1, steps - MARGIN), stops))
    ]


def train(folder: Path, steps: int, stops: list[Stop]) -> Path:
    """Train to the end, with these stops. Returns the run folder. Prints what the processes hold.

    Raises:
        RuntimeError: the command fails without a stop, or ends before one.
    """
    folder.mkdir(parents=True)
    name = folder.name
    command = [sys.executable, "-m", "gar", "train", *SETTINGS]
    command += ["--trl.max_steps", str(steps), "--records.output_dir", "."]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for stop in [*stops, None]:
        printed = folder / "output"
        with (
            printed.open("a") as output,
            running(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT) as process,
        ):
            for step in _watched(process, folder / "run", name):
                if stop and step >= stop.step:
                    time.sleep(stop.delay_seconds)
                    _send(process, stop.signal)
                    print(f"{name}: {stop.signal.name} after step {step}", flush=True)
                    break
            process.wait(timeout=SECONDS)
        if (stop is None) != (process.returncode == 0):
            raise RuntimeError(f"{name}: exit status {process.returncode} for {stop}. See {printed}.")
    return folder / "run"


def _watched(process: subprocess.Popen, run: Path, name: str) -> Iterator[int]:
    """Steps that are recorded, twice a second until the process ends."""
    start = _num_steps(run)
    last: _Use | None = None
    while process.poll() is None:
        step = _num_steps(run)
        with suppress(psutil.NoSuchProcess):  # it ended just now
            if last is None and step > start:  # from here on everything is imported
                last = _Use.of(process.pid, step)
            elif last is not None and step // PERIOD > last.step // PERIOD:
                before, last = last, _Use.of(process.pid, step)
                size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
                print(
                    f"{name}: step {step}, {last.seconds_a_step(before):.3f} CPU seconds a step, "
                    f"memory {last.memory / MIB:.0f} MiB, folder {size / MIB:.1f} MiB",
                    flush=True,
                )
        yield step
        time.sleep(0.5)


def _num_steps(run: Path) -> int:
    """Steps in the metrics of a run, which may not exist yet."""
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Use:
    """What a command and its children have used when `step` steps were recorded. Memory in bytes."""

    step: int
    memory: int
    cpu_seconds: float

    @classmethod
    def of(cls, pid: int, step: int) -> "_Use":
        members = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        times = [member.cpu_times() for member in members]
        return cls(
            step=step,
            memory=sum(member.memory_info().rss for member in members),
            cpu_seconds=sum(used.user + used.system for used in times),
        )

    def seconds_a_step(self, before: "_Use") -> float:
        """CPU seconds a step since then."""
        return (self.cpu_seconds - before.cpu_seconds) / (self.step - before.step)


def _send(process: subprocess.Popen, which: signal.Signals) -> None:
    """SIGTERM goes to the command, SIGKILL to all that it started."""
    if which == signal.SIGKILL:
        os.killpg(process.pid, which)
    else:
        process.send_signal(which)


def main() -> int:
    """Returns 0 if the runs are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--stops", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    stops = plan(options.steps, options.stops, options.seed)
    with ThreadPoolExecutor(2) as threads:
        whole = threads.submit(train, options.folder / "whole", options.steps, [])
        stopped = threads.submit(train, options.folder / "stopped", options.steps, stops)
        runs = [whole.result(timeout=DAY), stopped.result(timeout=DAY)]
    expected, there = (contents(run) for run in runs)
    for difference in (found := differences(expected, there)):
        print(difference)
    print(f"{len(expected)} files, {len(found)} kinds of differences")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
