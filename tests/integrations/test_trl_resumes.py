"""A resumed training equals an uninterrupted one, in the middle of a generation and after its first epoch."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from gar.data.arithmetic import load_arithmetic
from gar.integrations.trl.trainer import GARTrainer
from gar.records import RolloutRecord
from tests.integrations.conftest import TrainerFactory

STEPS = {"max_steps": 9, "save_strategy": "steps", "save_steps": 1, "num_iterations": 2, "logging_steps": 2}
"""Of 8 problems 4 at a time, each twice: an epoch has 4 steps, and after odd steps rollouts are left."""


def rows(kind: str) -> Any:
    problems = load_arithmetic("train")[:8]
    columns = [
        {"id": p.id, "prompt": p.prompt, "answer": p.answer, "expert_solution": [a.text for a in p.anchors]}
        for p in problems
    ]
    return Dataset.from_list(columns) if kind == "table" else Dataset.from_list(columns).to_iterable_dataset(2)


def results(trainer: GARTrainer, records: list[RolloutRecord], after: int) -> tuple[list[dict], list[dict], Any]:
    """Records and metrics of the steps after one, and the weights."""
    logged = [
        {name: value for name, value in row.items() if "time" not in name and "per_second" not in name}
        for row in trainer.state.log_history
        if row["step"] > after and "train_runtime" not in row
    ]
    return [asdict(row) for row in records if row.step > after], logged, trainer.model.state_dict()


@pytest.mark.parametrize("kind", ["table", "stream"])
@pytest.mark.filterwarnings("ignore:train_dataset is a stream")
def test_a_resumed_training_equals_a_whole_one(make_trainer: TrainerFactory, tmp_path: Path, kind: str):
    trainer, records = make_trainer(problems=rows(kind), args=STEPS)
    trainer.train()
    seen = [{record.problem_id for record in records if record.step == step} for step in (1, 3, 5, 7)]
    assert seen[0] | seen[1] == seen[2] | seen[3]
    assert seen[0] != seen[2]  # each epoch has its own order
    shutil.move(tmp_path / "out", tmp_path / "whole")
    for step in (4, 5, 8):
        shutil.copytree(tmp_path / "whole" / f"checkpoint-{step}", tmp_path / "out" / f"checkpoint-{step}")
        resumed, rest = make_trainer(problems=rows(kind), args=STEPS)
        resumed.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{step}"))
        found, expected = results(resumed, rest, step), results(trainer, records, step)
        assert found[:2] == expected[:2]
        assert all(torch.equal(tensor, expected[2][name]) for name, tensor in found[2].items())
        # A resume of this one goes on from the same place.
        files = [tmp_path / folder / "checkpoint-9" / "under_way_0.pt" for folder in ("out", "whole")]
        mine, theirs = (torch.load(file)["epoch"] for file in files)
        assert mine == theirs == (2, 8)
        shutil.rmtree(tmp_path / "out")
