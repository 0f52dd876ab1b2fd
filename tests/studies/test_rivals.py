"""studies/rivals.py: the teacher reads the expert solution, on the data and budget of the comparisons."""

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from gar.config import RunConfig, make_config, merge, read_preset
from gar.data.arithmetic import load_arithmetic, privileged_prompt
from gar.integrations.trl.arguments import grpo_arguments
from gar.models.embedded import load_embedded
from gar.verify import Verifier
from studies import rivals

RIVALS = ["sdft", "sdpo"]


def config_of(folder: Path, **trl: object) -> RunConfig:
    over = {
        "method": "grpo",
        "records": {"folder": str(folder)},
        "evaluate": {"max_problems": 2, "num_samples": 4, "ks": [1]},
        "trl": trl,
    }
    return make_config(merge(read_preset("bench"), over))


class Batches(TrainerCallback):
    """Keeps what TRL says of each batch that it prepared."""

    def __init__(self) -> None:
        self.seen: list[dict[str, torch.Tensor]] = []

    def on_self_distillation_batch_prepared(self, args, state, control, **kwargs) -> None:
        self.seen.append(kwargs)


@pytest.mark.parametrize("rival", RIVALS)
def test_make_trainer_gives_the_teacher_the_privileged_prompt_and_grpos_problems(rival, tmp_path):
    model, tokenizer = load_embedded()
    problems = load_arithmetic("train")
    config = config_of(tmp_path, max_steps=1, num_iterations=1)
    batches = Batches()
    with Verifier() as verifier:
        trainer = rivals.make_trainer(rival, model, tokenizer, problems, verifier, config, tmp_path)
        trainer.add_callback(batches)
        trainer.train()

    grpo = GRPOTrainer(
        load_embedded()[0],
        lambda completions, **_: [0.0] * len(completions),
        args=grpo_arguments(config, tmp_path),
        train_dataset=trainer.train_dataset,
        processing_class=tokenizer,
    )
    order = list(trainer._get_train_sampler())[:128]
    assert order == list(grpo._get_train_sampler())[:128]
    for setting in ("learning_rate", "lr_scheduler_type", "max_steps", "temperature", "weight_decay", "max_grad_norm"):
        assert getattr(trainer.args, setting) == getattr(grpo.args, setting)

    (batch,) = batches.seen
    width = batch["completion_ids"].shape[1]
    assert len(batch["completion_ids"]) == 64
    for row, index in enumerate(order[:64]):
        student = batch["prompt_ids"][row]
        teacher = batch["teacher_input_ids"][row]
        mask = batch["teacher_attention_mask"][row].bool()
        assert student[student != tokenizer.pad_token_id].tolist() == tokenizer.encode(problems[index].prompt)
        read = teacher[:-width][mask[:-width]].tolist()
        assert read == tokenizer.encode(privileged_prompt(problems[index]))
        assert torch.equal(teacher[-width:], batch["completion_ids"][row])


@pytest.mark.slow
@pytest.mark.parametrize("rival", RIVALS)
def test_run_writes_the_summary_of_a_run(rival, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rivals.py", rival])
    folder = rivals.run(rival, config_of(tmp_path, max_steps=2, num_iterations=2))
    record = json.loads((tmp_path / f"{rival}-0" / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["command"] == f"python -m studies.rivals {rival}"
    assert record["summary"]["steps"] == 2
    assert record["summary"]["step_seconds"] > 0
    for moment in ("before", "after"):
        assert set(record["summary"]["pass_at"][moment]) == {"test", "harder"}
    first, second = folder.read_metrics()
    assert first["grad_norm"] > 0  # the expert solution moves the policy
    assert "completions/mean_length" in first
    assert "completions/mean_length" not in second  # the second update is on the same rollouts
