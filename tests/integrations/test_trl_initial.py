"""`signal.policy` initial under TRL: every step has the vectors of the policy before training."""

import copy
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from gar import GARScorer, ResponseGroup
from gar.data.arithmetic import load_arithmetic
from gar.errors import ConfigError
from gar.models.embedded import load_embedded
from gar.records import RolloutRecord
from gar.settings import SignalSettings
from tests.integrations.conftest import TrainerFactory
from tests.support.errors import raises

INITIAL = SignalSettings(policy="initial")
THINK = SignalSettings(span="think")  # what the trainer's verifier of think-answer implies
STEPS: dict[str, Any] = {"max_steps": 2, "learning_rate": 1e-2}
ALL: dict[str, Any] = {"task_type": "CAUSAL_LM", "target_modules": "all-linear"}


def train(make_trainer: TrainerFactory, signal: SignalSettings = INITIAL, **options) -> list[RolloutRecord]:
    trainer, records = make_trainer(signal=signal, problems=load_arithmetic("train")[:4], **options)
    trainer.train()
    return records


def changed_in_memory() -> Any:
    """Differs from TRL's reference, which is loaded by the model's name."""
    model = load_embedded()[0]
    with torch.no_grad():
        model.model.norm.weight.mul_(1.2)
    return model


def second_adapter() -> Any:
    torch.manual_seed(0)
    model = get_peft_model(load_embedded()[0], LoraConfig(r=4, **ALL, init_lora_weights=False))
    model.add_adapter("second", LoraConfig(r=2, task_type="CAUSAL_LM", target_modules=["q_proj"]))
    model.base_model.set_adapter(["default", "second"])
    return model


@pytest.mark.parametrize("build", [changed_in_memory, second_adapter])
def test_all_steps_have_the_vectors_of_the_first_policy(make_trainer, build):
    model, whole = build(), build is changed_in_memory
    scorer = GARScorer(copy.deepcopy(model), load_embedded()[1], signal=THINK)
    args = STEPS | ({"learning_rate": 1e-3, "beta": 0.1} if whole else {})  # at 1e-2 it would unlearn the task
    records = train(make_trainer, model=model, args=args)
    scored = [record for record in records if record.alignment is not None]
    assert len([record for record in scored if record.step == 2]) >= 4
    problems = load_arithmetic("train")
    groups = [group_of(problems[record.group_index], record.response) for record in scored]
    expected = [score.alignment for score in scorer.score(groups)[::2]]
    assert [record.alignment for record in scored] == pytest.approx(expected, abs=2e-5)  # float32 over other paddings
    now = [score.alignment for score in GARScorer(model, load_embedded()[1], signal=THINK).score(groups)[::2]]
    assert now != pytest.approx(expected, abs=1e-3)  # the policy has moved


def group_of(problem, response: str) -> ResponseGroup:
    anchors = [anchor.text for anchor in problem.anchors]
    return ResponseGroup(prompt=problem.prompt, responses=[response, response], anchors=anchors, eligible=[True, True])


def test_the_trained_weights_come_back_after_a_failure(make_trainer):
    trainer, _ = make_trainer(signal=INITIAL)
    norm = trainer.model.model.norm.weight
    with torch.no_grad():
        norm.mul_(2)
    before = norm.clone()
    with suppress(KeyboardInterrupt), trainer._states.own_passes():
        assert not torch.equal(norm, before)
        raise KeyboardInterrupt
    assert torch.equal(norm, before)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_initial_policy(make_trainer, tmp_path: Path):
    """The new trainer has the run's model, into which the checkpoint is loaded."""
    args = {**STEPS, "max_steps": 3, "save_strategy": "steps", "save_steps": 2}
    for adapter in (None, LoraConfig(r=4, **ALL)):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        whole = train(make_trainer, args=args, peft_config=adapter)
        shutil.rmtree(tmp_path / "out" / "checkpoint-3")
        problems = load_arithmetic("train")[:4]
        trainer, rest = make_trainer(signal=INITIAL, args=args, peft_config=adapter, problems=problems)
        trainer.train(resume_from_checkpoint=True)
        assert [r for r in whole if r.step == 3] == rest
        assert sum(r.alignment is not None for r in rest) > 4


def test_what_has_no_initial_policy_is_an_error(make_trainer):
    model = load_embedded()[0]
    model.model.norm.weight.requires_grad_(False)
    trainer, _ = make_trainer(signal=INITIAL, model=model)
    model.model.norm.weight.requires_grad_(True)
    with raises(ConfigError, "trained-weights"):
        trainer.train()
    trainer, _ = make_trainer(signal=INITIAL, model=(model := load_embedded()[0]))
    model.resize_token_embeddings(300)
    with raises(ConfigError, "trained-weights"), trainer._states.own_passes():
        pass
