"""The source of hidden states in `GARTrainer`: of a LoRA policy, and of the policy before training."""

import copy
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from gar import GARScorer
from gar.data.arithmetic import load_arithmetic
from gar.errors import ConfigError
from gar.integrations.trl.states import StateSource
from gar.models.embedded import load_embedded
from gar.records import RolloutRecord
from gar.settings import SignalSettings
from tests.integrations.conftest import TrainerFactory
from tests.integrations.replay import NotingTrainer
from tests.support.errors import raises
from tests.support.rows import group_of

# Two updates per generation, so TRL computes old log-probs; a KL weight, so it runs the model without adapter as well.
TWO_UPDATES = {"steps_per_generation": 2, "per_device_train_batch_size": 16, "num_generations": 8, "beta": 0.1}


def alignments(make_trainer: TrainerFactory) -> tuple[dict[str, float], int]:
    """A step with an adapter that is not zero at the start: by prompt and response, and the number of captured rows."""
    config = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear", init_lora_weights=False)
    trainer, records = make_trainer(kind=NotingTrainer, peft_config=config, args=TWO_UPDATES)
    targets = trainer.model.peft_config["default"].target_modules
    assert targets == sorted(targets), "PEFT's set would be written in another order by each process"
    trainer.train()
    found = {f"{r.prompt}{r.response}": r.alignment for r in records if r.alignment is not None}
    return found, trainer.num_captured


def test_captured_vectors_are_the_adapters_and_not_the_references(make_trainer, monkeypatch):
    found, num_captured = alignments(make_trainer)
    assert num_captured == 32  # from the policy's pass, and none from the reference's
    monkeypatch.setattr(StateSource, "_computes_old_logps", lambda self: False)
    sampled, num_captured = alignments(make_trainer)
    assert num_captured == 32  # from sampling
    monkeypatch.setattr("gar.integrations.trl.states.MOST_CAPTURED_BYTES", 0)
    expected, num_captured = alignments(make_trainer)
    assert num_captured == 0  # from a pass of GAR's
    assert len(found) > 5
    # Float32 sums over different paddings.
    assert found == pytest.approx(expected, abs=1e-5)
    assert sampled == pytest.approx(expected, abs=1e-5)


def has_even_length(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text) % 2 == 0) for text in completions]


def test_learned_positions_count_padding_in_the_pass_of_trl(make_trainer, monkeypatch):
    """GPT-2 in a pass with prompts padded on the left and without positions has the states of other positions."""
    size = {"n_embd": 16, "n_layer": 1, "n_head": 1, "n_positions": 128, "vocab_size": len(load_embedded()[1])}
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_dropout"), 0.0)
    torch.manual_seed(0)
    config = AutoConfig.for_model("gpt2", **size, **rates, bos_token_id=1, eos_token_id=1)
    gpt2 = AutoModelForCausalLM.from_config(config)
    for weight in gpt2.parameters():  # fresh weights are too small for positions to matter
        weight.data *= 5

    def scored(passes: int) -> dict[str, float]:
        args = {"steps_per_generation": passes, "per_device_train_batch_size": 32 // passes, "learning_rate": 0.0}
        options = {"model": copy.deepcopy(gpt2), "verifier": None, "reward_funcs": has_even_length}
        trainer, records = make_trainer(args=args, **options)
        trainer.train()
        return {f"{r.prompt}{r.response}": r.alignment for r in records if r.alignment is not None}

    beside_trl, sampled = scored(passes=2), scored(passes=1)
    monkeypatch.setattr("gar.integrations.trl.states.MOST_CAPTURED_BYTES", 0)
    expected = scored(passes=1)  # from passes of GAR's
    assert len(expected) > 5
    assert beside_trl == pytest.approx(expected, abs=1e-5)
    assert sampled == pytest.approx(expected, abs=1e-5)  # `generate` gives positions


@pytest.mark.parametrize("adapter", [None, LoraConfig(target_modules=["q_proj"])], ids=["plain", "adapter"])
def test_rollouts_are_not_sampled_by_the_settings_of_the_checkpoint(make_trainer, adapter):
    def written(own: dict[str, Any], chosen: dict[str, Any] | None = None) -> list[str]:
        trainer, records = make_trainer(args={"generation_kwargs": chosen}, peft_config=adapter)
        base = trainer.model.get_base_model() if adapter else trainer.model
        for name, value in own.items():
            setattr(base.generation_config, name, value)
        trainer.train()
        assert [getattr(base.generation_config, name) for name in own] == [*own.values()]  # they are saved with it
        return [row.response for row in records]

    plain = written({})
    for own in ({"min_p": 0.9}, {"no_repeat_ngram_size": 1}, {"typical_p": 0.05}, {"suppress_tokens": [5, 6, 7, 8]}):
        assert written(own) == plain, own
    assert written({}, {"min_p": 0.9}) != plain


def test_states_of_a_decoding_with_more_than_one_candidate_do_not_count(make_trainer):
    for chosen, counts in (({}, True), ({"prompt_lookup_num_tokens": 3}, False), ({"num_beams": 2}, False)):
        trainer, _ = make_trainer(args={"generation_kwargs": chosen})
        assert trainer._states.come_from_sampling() == counts, chosen


def test_adapter_with_dropout_is_scored_in_an_extra_pass(make_trainer):
    for dropout in (0.0, 0.5):
        trainer, _ = make_trainer(
            peft_config=LoraConfig(target_modules=["q_proj"], lora_dropout=dropout), args=TWO_UPDATES
        )
        assert trainer._states.come_from_pass(trainer.model) == (dropout == 0.0)
        assert not trainer._states.come_from_sampling()


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
    groups = [group_of(problems[each.group_index], [each.response] * 2, eligible=[True, True]) for each in scored]
    expected = [score.alignment for score in scorer.score(groups)[::2]]
    assert [record.alignment for record in scored] == pytest.approx(expected, abs=2e-5)  # float32 over other paddings
    now = [score.alignment for score in GARScorer(model, load_embedded()[1], signal=THINK).score(groups)[::2]]
    assert now != pytest.approx(expected, abs=1e-3)  # the policy has moved


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
