"""Runs that were never trained: what `gar train` leaves behind, written directly."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gar.config import make_config
from gar.data.arithmetic import load_arithmetic
from gar.records import RolloutRecord, RunFolder
from gar.records.rollouts import SampleRecord
from gar.types import Status
from tests.support import rows
from tests.support.runs import write_evaluation

PROBLEMS = load_arithmetic("train")
EVALUATION = {"before": [1, 2, 0, 3, 1, 2, 0, 1], "after": [3, 4, 2, 4, 3, 4, 1, 3]}
"""Right samples of four, by problem."""


def rollout(step: int, group: int, index: int, **own: Any) -> RolloutRecord:
    """A right response, unless told otherwise."""
    problem = PROBLEMS[(step * 10 + group) % len(PROBLEMS)]
    values: dict[str, Any] = {
        "problem_id": problem.id, "prompt": problem.prompt, "response": problem.anchors[0].text,
        "gold": problem.answer, "answer": problem.answer, "alignment": 0.125 * (index + 1), "bonus": 0.05 * index,
        "reward": 1 + 0.05 * index, "advantage": 0.5, "num_tokens": 16, "num_scored_tokens": 10, "signal_norm": 0.25,
        "prompt_tokens": 6,
    }  # fmt: skip
    return rows.rollout(step, group, index, **values | own)


def wrong(step: int, group: int, index: int, **own: Any) -> RolloutRecord:
    """A wrong response."""
    outcome = {"status": Status.WRONG, "verified": False, "eligible": False, "alignment": None, "bonus": 0.0}
    return rollout(step, group, index, **outcome | {"reward": 0.0, "advantage": -0.5, "signal_norm": None} | own)


def evaluation(num_correct: Sequence[int], num_samples: int = 4) -> dict[str, Any]:
    """The numbers of one set, `test`."""
    problems = [{"id": f"p{i}", "num_correct": count} for i, count in enumerate(num_correct)]
    pass_at = {"1": sum(num_correct) / len(num_correct) / num_samples}
    return {"test": {"num_samples": num_samples, "pass_at": pass_at, "problems": problems}}


def sample(problem: int, index: int, **changes: Any) -> SampleRecord:
    """A right sample of an evaluation on the set `test`, unless told otherwise."""
    asked = load_arithmetic("test")[problem]
    values: dict[str, Any] = {
        "set_name": "test", "problem_id": asked.id, "group_index": problem, "response_index": index,
        "prompt": asked.prompt, "response": asked.anchors[0].text, "gold": asked.answer, "answer": asked.answer,
        "status": Status.OK, "verified": True, "well_formatted": True, "num_tokens": 16, "truncated": False,
    }  # fmt: skip
    return SampleRecord(**values | changes)


def make_run(
    parent: Path,
    name: str = "run",
    *,
    seed: int = 0,
    steps: int = 6,
    settings: Mapping[str, Any] | None = None,
    rollouts: Mapping[int, Sequence[RolloutRecord]] | None = None,
    evaluations: Mapping[str, Sequence[int]] = EVALUATION,
    status: str = "finished",
) -> Path:
    """A run folder with everything in it."""
    config = make_config({"seed": seed, **(settings or {})})
    folder = RunFolder.create(parent, name)
    folder.write_run(
        seed=seed, command=["gar", "train"], config=config.model_dump(mode="json"), data_hash="d",
    )  # fmt: skip
    for step in range(1, steps + 1):
        folder.append_metrics(
            {
                "step": step, "reward": step / 50, "gar/eligible_fraction": step / 100,
                "gar/alignment_mean": 0.05 * step, "gar/zero_std_group_fraction_outcome": 0.5,
                "gar/zero_std_group_fraction_shaped": 0.25, "time/step_seconds": 2.0, "time/gar_seconds": 0.5,
            }
        )  # fmt: skip
        if rollouts is None:
            folder.write_rollouts([rollout(step, 0, 0), rollout(step, 0, 1), wrong(step, 1, 0), wrong(step, 1, 1)])
        if step % 2 == 0:
            folder.close_rollouts()
    for records in (rollouts or {}).values():
        folder.write_rollouts(records)
    for moment, num_correct in evaluations.items():
        write_evaluation(folder, moment, evaluation(num_correct))
    if status != "running":
        folder.update_run(status=status)
    return folder.path
