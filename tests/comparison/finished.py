"""Run folders as `gar train` leaves them, written without training."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from gar.comparison.plan import PlannedRun
from gar.comparison.pool import Usage
from gar.comparison.result import RunResult, collected_result
from gar.config import RunConfig
from gar.evaluation import pass_at_k
from gar.records import RolloutRecord, RunFolder
from tests.support.rows import rollout
from tests.support.runs import write_evaluation


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
    folder.write_run(seed=config.seed, command=["gar"], config=values, data_hash="d")
    for step in (1, 2, 3, 4):
        first = step % 2
        numbers = {"reward": step / 10, "gar/eligible_fraction": step / 10, "gar/alignment_mean": None}
        times = {"step": 1.5 if first else 0.5, "generation": 1.0 if first else 0.0, "update": 0.5}
        seconds = {f"time/{part}_seconds": step_seconds * share for part, share in times.items()}
        folder.append_metrics({"step": step, **seconds, **(numbers if first else {})})
        if first:
            folder.write_rollouts(rollouts(step, problem_ids))
    num_samples = config.evaluate.num_samples
    sets = {
        name: {
            "num_samples": num_samples,
            "problems_hash": "e",
            "pass_at": {k: fmean(pass_at_k(num_samples, c, k) for c in counts) for k in config.evaluate.pass_at_k},
            "problems": [{"id": f"{name}-{i}", "num_correct": c} for i, c in enumerate(counts)],
        }
        for name, counts in (num_correct or {"test": [1, 2]}).items()
    }
    write_evaluation(folder, "after", sets)
    folder.update_run(status="finished", summary={"steps": 4})
    return folder


def result(
    planned: PlannedRun, num_correct: Mapping[str, Sequence[int]], *, peak_memory_bytes: int = 500 * 2**20, **run: Any
) -> RunResult:
    """Write the run of `planned` and its result, in place of earlier ones."""
    shutil.rmtree(planned.folder, ignore_errors=True)
    write_run(planned.config, num_correct=num_correct, **run)
    usage = Usage(wall_seconds=60.0, cpu_seconds=50.0, peak_memory_bytes=peak_memory_bytes)
    made = collected_result(planned, usage)
    assert made is not None
    return made


def prepare(cells: Sequence[PlannedRun]) -> None:
    """Finished runs for `stand_in.py` to put in place. Under seed 16 the methods see different problems."""
    Path("prepared").mkdir()
    for cell in cells:
        other = cell.seed == 16 and cell.label == "gar-grpo"
        write_run(cell.config, problem_ids=("p1", "p3") if other else ("p1", "p2"))
        cell.folder.rename(Path("prepared", cell.folder.name))
