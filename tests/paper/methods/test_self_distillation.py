"""SDFT and SDPO: the teacher and its prompt, the records of a run, and what is rejected."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from gar.config import RunConfig, make_config, merge, read_preset
from gar.data.arithmetic import load_arithmetic
from gar.errors import DataError
from gar.integrations.trl import RunParts
from gar.integrations.trl.arguments import grpo_arguments, in_folder
from gar.models.embedded import load_embedded
from gar.reader import Reader
from gar.records import RolloutRecord
from gar.settings import SignalSettings, VerifySettings
from gar.types import Problem
from gar.verify import Verifier
from paper.methods.self_distillation_trainer import teacher_arguments, teacher_prompt, teacher_trainer
from paper.tasks.chains import privileged_prompt
from tests.support.errors import raises

METHODS = ["sdft", "sdpo"]

pytestmark = pytest.mark.paper


class Watcher(TrainerCallback):
    """Keeps each batch that TRL prepared, and one weight of the policy after each step."""

    def __init__(self) -> None:
        self.batches: list[dict[str, torch.Tensor]] = []
        self.weights: list[torch.Tensor] = []

    def on_self_distillation_batch_prepared(self, args, state, control, **kwargs) -> None:
        self.batches.append(kwargs)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.weights.append(weight_of(kwargs["model"]))


def weight_of(model: Any) -> torch.Tensor:
    return model.model.layers[0].mlp.up_proj.weight.detach().clone()


def config_of(method: str, source: str = "arithmetic", **trl: Any) -> RunConfig:
    small = {"max_steps": 1, "num_iterations": 1, "per_device_train_batch_size": 16, "learning_rate": 2e-4}
    values = {"method": method, "data": {"source": source}, "trl": small | trl}
    return make_config(merge(read_preset("bench"), values))


def make_trainer(
    method: str, folder: Path, verifier: Verifier, problems: list[Problem], **trl: Any
) -> tuple[Any, list[RolloutRecord], Watcher]:
    """A trainer, the records that it writes, and a watcher of TRL's work."""
    model, tokenizer = load_embedded()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    config = config_of(method, **trl)
    records: list[RolloutRecord] = []
    watcher = Watcher()
    arguments, shaping = grpo_arguments(config)
    parts = RunParts(
        model=model,
        tokenizer=tokenizer,
        problems=problems,
        reader=Reader.from_settings(tokenizer, SignalSettings(), VerifySettings(), context=None),
        verifier=verifier,
        settings=config,
        shaping=shaping,
        adapter=None,
        arguments=in_folder(arguments, config, folder),
        on_rollouts=lambda step, rows: records.extend(rows),
    )
    trainer = teacher_trainer(parts)
    trainer.add_callback(watcher)
    return trainer, records, watcher


def teacher_texts(watcher: Watcher) -> list[list[int]]:
    """The teacher's prompts of the first batch."""
    batch = watcher.batches[0]
    width = batch["completion_ids"].shape[1]
    assert torch.equal(batch["teacher_input_ids"][:, -width:], batch["completion_ids"])
    mask = batch["teacher_attention_mask"].bool()
    return [ids[:-width][m[:-width]].tolist() for ids, m in zip(batch["teacher_input_ids"], mask, strict=True)]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_trains_on_the_problems_of_grpo_with_its_teacher(method: str, tmp_path: Path, verifier: Verifier):
    """Two optimizer steps on one generation."""
    problems = load_arithmetic("train")
    trainer, records, watcher = make_trainer(method, tmp_path, verifier, problems, num_iterations=2, max_steps=2)
    trainer.log = lambda *_: None  # it would clear the metrics
    start, tokenizer = weight_of(trainer.model), trainer.processing_class
    trainer.train()
    plain = config_of("grpo", num_iterations=2)
    grpo = GRPOTrainer(
        load_embedded()[0],
        lambda completions, **_: [0.0] * len(completions),
        args=in_folder(grpo_arguments(plain)[0], plain, tmp_path),
        train_dataset=trainer.train_dataset,
        processing_class=tokenizer,
    )
    order = list(grpo._get_train_sampler())[:16]
    assert len(set(order)) == 2
    assert [record.problem_id for record in records] == [problems[i].id for i in order]
    for name in ("learning_rate", "lr_scheduler_type", "temperature", "top_k", "max_grad_norm", "num_iterations"):
        assert getattr(trainer.args, name) == getattr(grpo.args, name)
    assert teacher_texts(watcher) == [tokenizer.encode(privileged_prompt(problems[i])) for i in order]

    first, second = watcher.weights
    assert not torch.equal(start, first)
    average = torch.lerp(torch.lerp(start, first, 0.05), second, 0.05)  # TRL's default rate
    expected = start if method == "sdft" else average
    torch.testing.assert_close(weight_of(trainer.teacher_model), expected, rtol=1e-6, atol=1e-8)  # float32 sums

    metrics, rewards = trainer._metrics["train"], [record.reward for record in records]
    assert metrics["reward"] == [pytest.approx(sum(rewards) / 16)]
    assert metrics["gar/eligible_fraction"] == [sum(record.eligible for record in records) / 16]
    assert [seconds > 0 for seconds in metrics["time/generation_seconds"]] == [True, False]
    assert not any(math.isnan(value) for values in metrics.values() for value in values)
    for group in set(order):
        members = torch.tensor([r.reward for r in records if r.group_index == group], dtype=torch.float64)
        standardized = (members - members.mean()) / (members.std(correction=0) + 1e-6)  # as grpo's, in the paper's form
        given = [record.advantage for record in records if record.group_index == group]
        assert given == pytest.approx(standardized.tolist(), abs=1e-9)  # float64
    if method == "sdpo":
        assert metrics["self_distillation/reward_mean"] == [pytest.approx(sum(rewards) / 16)]


@pytest.mark.parametrize("method", METHODS)
def test_rollouts_are_not_sampled_by_the_settings_of_the_checkpoint(method: str, tmp_path: Path, verifier: Verifier):
    def written(**own: Any) -> list[str]:
        trainer, records, _ = make_trainer(method, tmp_path, verifier, load_arithmetic("train"), max_steps=1)
        for name, value in own.items():
            setattr(trainer.model.generation_config, name, value)
        trainer.train()
        return [record.response for record in records]

    assert written(no_repeat_ngram_size=1) == written()


def test_teacher_prompt_of_a_chat_is_in_the_users_message(tmp_path: Path, verifier: Verifier):
    problems = [
        replace(problem, prompt=[{"role": "system", "content": "7"}, {"role": "user", "content": str(problem.prompt)}])
        for problem in load_arithmetic("train")[:8]
    ]
    for method in METHODS:
        args = teacher_arguments(config_of(method, "train.jsonl"), str(tmp_path))
        system, user = teacher_prompt(args, problems[0])
        solution = problems[0].anchors[0].text
        assert (system, user["role"]) == (problems[0].prompt[0], "user")
        assert user["content"].index(solution) > user["content"].index(problems[0].prompt[-1]["content"])
        assert "unsuccessful" not in user["content"]  # TRL's word for feedback
    trainer, records, watcher = make_trainer("sdpo", tmp_path, verifier, problems)
    trainer.train()
    for ids, record in zip(teacher_texts(watcher), records, strict=True):
        problem = next(problem for problem in problems if problem.id == record.problem_id)
        shown = teacher_prompt(trainer.args, problem)
        assert ids == trainer.processing_class.apply_chat_template(shown, return_dict=True)["input_ids"]


def test_problems_without_a_solution_or_too_few_are_an_error(tmp_path: Path, verifier: Verifier):
    problems = load_arithmetic("train")[:4]
    for unfit in ([problems[0], replace(problems[1], anchors=())], problems[:1]):
        with raises(DataError):
            make_trainer("sdft", tmp_path, verifier, unfit)
