"""The files of a long run, written without training, and the cost of writing and reading them.

    python benchmarks/records.py [--steps 1000 10000 100000] [--responses 64] [--save-steps 100] [--folder FOLDER]

Writes rollouts, metrics and small checkpoints as `gar train` does, two of which stay. The run ends half of
`--save-steps` after its last checkpoint, as if it was killed. Prints for each number of steps:

    files       number of files, megabytes of all, megabytes of the newest checkpoint's SHA256SUMS
    written in  CPU seconds for rollouts and metrics, for `seal_checkpoint` and `rotate_checkpoints`, and for these two
                in the last tenth of the run
    open_run    CPU seconds and peak memory
    rollouts    the same of one column of all rollouts
    resume      the same of what a resume reads and cuts before it trains

Each reading has a process of its own, and memory is the peak of the resident set beyond what was in use before.
Writes results/records-cpu.json.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from common import in_a_process, machine, resident_bytes, write_json

from gar import Status
from gar.records import (
    RolloutRecord,
    RunFolder,
    find_checkpoint,
    open_run,
    rotate_checkpoints,
    seal_checkpoint,
)

RESPONSE = "<think> ? = 7 + 5 = 12, and 12 * 3 = 36 </think> <answer> 36 </answer>"
NUM_METRICS = 55
"""As many as a run of the demo logs in a step."""


def rows(step: int, number: int) -> list[RolloutRecord]:
    """The rollouts of a step, in groups of eight."""
    return [
        RolloutRecord(
            step=step, problem_id=f"train-{step * number // 8 + i // 8}", group_index=i // 8, response_index=i % 8,
            prompt=f"({step}+5)*3=", response=f"{step} {i} {RESPONSE}", gold="36", answer="36", status=Status.OK,
            verified=True, well_formatted=True, eligible=True, anchor=True, alignment=1 / (step + i), bonus=0.01 * i,
            penalty=0.0, reward=1 + 0.01 * i, advantage=0.1 * i, num_tokens=30 + i, truncated=False,
            num_scored_tokens=20 + i, signal_norm=1 / (1 + i), prompt_tokens=8,
        )
        for i in range(number)
    ]  # fmt: skip


def write_run(folder: Path, steps: int, responses: int, save_steps: int) -> dict[str, float]:
    """A run that was killed. CPU seconds of its writes."""
    run = RunFolder.create(folder, "run")
    run.write_run(seed=0, command=["gar", "train"], config={}, data_hash=None)
    parts = ["write", "seal", "rotate", "seal, last tenth", "rotate, last tenth"]
    seconds: dict[str, float] = dict.fromkeys(parts, 0.0)

    def timed(name: str, step: int, work: Callable[[], Any]) -> None:
        start = time.process_time()
        work()
        spent = time.process_time() - start
        seconds[name] += spent
        if name != "write" and step > 0.9 * steps:
            seconds[f"{name}, last tenth"] += spent

    for step in range(1, steps + save_steps // 2 + 1):
        records = rows(step, responses)
        values = {f"gar/a_metric_of_step_{i}": (step + i) / 7 for i in range(NUM_METRICS)}
        timed("write", step, lambda records=records: run.write_rollouts(records))
        timed("write", step, lambda step=step, values=values: run.append_metrics({"step": step, **values}))
        if step % save_steps == 0:
            path = run.checkpoints / f"checkpoint-{step}"
            path.mkdir(parents=True)
            for i in range(8):
                (path / f"state-{i}").write_text(f"{step} {i}")
            (path / "rng_state.pth").write_text("")
            timed("seal", step, lambda step=step: seal_checkpoint(run, step))
            timed("rotate", step, lambda: rotate_checkpoints(run, 2))
    return seconds


def resume(path: Path) -> None:
    """What `gar train --resume` does to the records before it trains."""
    run = RunFolder.open(path)
    found = find_checkpoint(run, num_ranks=1)
    run.cut(found.step)
    run.update_run(status="running")
    rotate_checkpoints(run, 2)


READINGS: dict[str, Callable[[Path], Any]] = {
    "open_run": open_run,
    "rollouts": lambda path: open_run(path).rollouts(["reward"]),
    "resume": resume,
}


def measured(name: str, path: Path) -> dict[str, float]:
    """CPU seconds and peak memory of a reading, in this process."""
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, start = resident_bytes("VmRSS") or 0, time.process_time()
    READINGS[name](path)
    return {"cpu_seconds": time.process_time() - start, "peak_bytes": (resident_bytes("VmHWM") or 0) - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--responses", type=int, default=64)
    parser.add_argument("--save-steps", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="keeps the runs")
    parser.add_argument("--out", type=Path, default=Path("results/records-cpu.json"))
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for steps in arguments.steps:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (arguments.folder or Path(temporary)) / str(steps)
            seconds = write_run(folder, steps, arguments.responses, arguments.save_steps)
            files = [path for path in (folder / "run").rglob("*") if path.is_file()]
            sizes = {
                "number": len(files),
                "bytes": sum(path.stat().st_size for path in files),
                "checksum_bytes": max(path.stat().st_size for path in files if path.name == "SHA256SUMS"),
            }
            readings = {name: in_a_process(measured, name, folder / "run") for name in READINGS}
        results[str(steps)] = {"files": sizes, "seconds": seconds, "readings": readings}
        print(f"{steps:,} steps of {arguments.responses} responses, a checkpoint every {arguments.save_steps}")
        print(f"  files       {sizes['number']:,}, {sizes['bytes'] / 1e6:,.0f} MB", end=", ")
        print(f"checksums {sizes['checksum_bytes'] / 1e6:,.1f} MB")
        print("  written in  " + ", ".join(f"{name} {spent:.2f} s" for name, spent in seconds.items()))
        for name, used in readings.items():
            print(f"  {name:11} {used['cpu_seconds']:.2f} s, {used['peak_bytes'] / 1e6:,.0f} MB", flush=True)
    settings = {"responses": arguments.responses, "save_steps": arguments.save_steps}
    write_json(arguments.out, {"settings": settings, "results": results, "machine": machine()})


if __name__ == "__main__":
    main()
