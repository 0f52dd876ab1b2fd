"""Runs that were never trained: what `gar train` leaves behind, written directly. Also a stand-in for the child.

    python finished.py PARENT CONFIG.yaml        as `python -m gar.comparison.cell`, in a second

`seed` 12 fails the first time, 13 always; 14 is killed, 15 sleeps the first time until it is interrupted, 16 sees other
problems.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gar.comparison.cell import LOCKED, _die_with_parent
from gar.comparison.plan import PlannedRun
from gar.comparison.result import RunResult, finished_result, write_result
from gar.config import RunConfig, dump_config, make_config, read_config
from gar.errors import LockedError
from gar.records import RolloutRecord, RunFolder
from gar.records.lock import writer_lock
from tests.support.rows import rollout


def rollouts(step: int, problem_ids: Sequence[str]) -> list[RolloutRecord]:
    changes = {"anchor": False, "alignment": None, "signal_norm": None, "num_tokens": 1, "prompt_tokens": 1}
    return [rollout(step, i, problem_id=name, num_scored_tokens=0, **changes) for i, name in enumerate(problem_ids)]


def write_run(
    config: RunConfig,
    *,
    num_correct: Mapping[str, Sequence[int]] | None = None,
    problem_ids: Sequence[str] = ("p1", "p2"),
    step_seconds: float = 0.5,
) -> RunFolder:
    """A finished run: two generations of two steps, and counts of right responses by evaluation set."""
    folder = RunFolder.create(config.records.output_dir, config.records.name or "run")
    values = config.model_dump(mode="json")
    folder.write_run(seed=config.seed, command=["gar"], config=values, config_text=dump_config(config), data_hash="d")
    for step in (1, 2, 3, 4):
        first = step % 2
        numbers = {"reward": step / 10, "gar/eligible_fraction": step / 10, "gar/alignment_mean": None}
        times = {"step": 1.5 if first else 0.5, "generation": 1.0 if first else 0.0, "update": 0.5}
        seconds = {f"time/{part}_seconds": step_seconds * share for part, share in times.items()}
        folder.append_metrics({"step": step, **seconds, **(numbers if first else {})})
        if first:
            folder.write_rollouts(step, rollouts(step, problem_ids))
    num_samples = config.evaluate.num_samples
    sets = {
        name: {
            "num_samples": num_samples,
            "problems_hash": "e",
            "pass_at": {},
            "problems": [{"id": f"{name}-{i}", "num_correct": c} for i, c in enumerate(counts)],
        }
        for name, counts in (num_correct or {"test": [1, 2]}).items()
    }
    folder.write_json("evaluation/after.json", {"step": 4, "sets": sets})
    folder.update_run(status="finished", summary={"steps": 4})
    return folder


def result(
    planned: PlannedRun, num_correct: Mapping[str, Sequence[int]], *, peak_memory_bytes: int = 500 * 2**20, **run: Any
) -> RunResult:
    """Write the run of `planned` and its result, in place of earlier ones."""
    shutil.rmtree(planned.folder, ignore_errors=True)
    write_run(planned.config, num_correct=num_correct, **run)
    write_result(planned, (60.0, 50.0, peak_memory_bytes))
    made = finished_result(planned)
    assert made is not None
    return made


def main(parent: str, source: str) -> int:
    _die_with_parent(int(parent))
    try:
        with writer_lock(Path(source)):
            return stand_in(source)
    except LockedError:
        return LOCKED


def stand_in(source: str) -> int:
    config = make_config(read_config(source))
    planned = PlannedRun(label=config.method, config=config)
    if finished_result(planned):
        return 0
    with open(Path(config.records.output_dir) / "order.txt", "a") as file:
        file.write(f"{config.records.name} {os.environ['OMP_NUM_THREADS']} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
    first = Path(config.records.output_dir) / f"{config.records.name}.first"
    if config.seed == 12 and not first.exists():
        first.touch()
        return 1
    if config.seed == 13 and config.method == "grpo":
        print("this line and\nthe next one", file=sys.stderr)
        return 3
    if config.seed == 14:
        os.kill(os.getpid(), signal.SIGKILL)
    asleep = Path(config.records.output_dir) / f"{config.records.name}.asleep"
    if config.seed == 15 and not asleep.exists():
        asleep.write_text(str(os.getpid()))
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            (Path(config.records.output_dir) / f"{config.records.name}.interrupted").touch()
            return 130
    ids = ("p1", "p3") if config.seed == 16 and config.method == "gar-grpo" else ("p1", "p2")
    time.sleep(0.1)
    result(planned, {"test": [1, 2]}, problem_ids=ids)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(*sys.argv[1:]))
