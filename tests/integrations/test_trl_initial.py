"""`signal.policy` initial under TRL: equal to the current policy at the first step, and the same at every later one."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from gar import GarScorer
from gar.data.arithmetic import load_arithmetic
from gar.errors import ConfigError
from gar.integrations.slime.settings import SLIME
from gar.integrations.trl.initial import InitialPolicy
from gar.integrations.trl.rollouts import RolloutBatch
from gar.integrations.verl.settings import VERL
from gar.models.embedded import load_embedded
from gar.records import RolloutRecord
from gar.settings import SignalSettings
from gar.shaping import plan_shaping
from tests.integrations.conftest import TrainerFactory

INITIAL = SignalSettings(policy="initial")
THINK = SignalSettings(span="think")  # what the trainer's verifier of think-answer implies
STEPS = {"max_steps": 3, "learning_rate": 3e-3}
LORA = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "anchors"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each step: responses and anchors that a pass of our own was made for."""
    passes: list[tuple[int, int]] = []
    compute = RolloutBatch.compute_missing

    def count(self, parts, anchors, *args):
        passes.append((int((self.needed & ~self.has_means).sum()), len(anchors)))
        return compute(self, parts, anchors, *args)

    monkeypatch.setattr(RolloutBatch, "compute_missing", count)
    return passes


def train(make_trainer: TrainerFactory, signal: SignalSettings = INITIAL, **options) -> list[RolloutRecord]:
    trainer, records = make_trainer(signal=signal, problems=load_arithmetic("train")[:4], **options)
    trainer.train()
    return records


def test_the_first_step_is_that_of_the_current_policy_to_the_last_digit(make_trainer, monkeypatch):
    monkeypatch.setattr("gar.integrations.trl.states.MOST_CAPTURED_BYTES", 0)  # for both a pass of our own
    alone = SignalSettings(max_batch_tokens=1)  # each sequence in a pass of its own: sums in the same order
    current = train(make_trainer, alone)
    assert train(make_trainer, alone.model_copy(update={"policy": "initial"})) == current
    assert sum(record.alignment is not None for record in current) > 4


@pytest.mark.slow
def test_later_steps_have_the_vectors_of_the_first_policy(make_trainer, cache):
    records = train(make_trainer, args=STEPS)
    later = [record for record in records if record.step == 3 and record.alignment is not None]
    assert len(later) > 4
    problems = load_arithmetic("train")
    scorer = GarScorer(*load_embedded(), signal=THINK)
    for record in later:
        problem = problems[record.group_index]
        score, _ = scorer.score([group_of(problem, record.response)])
        assert record.alignment == pytest.approx(score.alignment, abs=1e-5)
    moved = [r.alignment for r in train(make_trainer, SignalSettings(), args=STEPS) if r.step == 3]
    assert [r.alignment for r in records if r.step == 3] != moved
    assert len(list(cache.rglob("*.safetensors"))) == 4


def group_of(problem, response: str):
    from gar import ResponseGroup

    anchors = [anchor.text for anchor in problem.anchors]
    return ResponseGroup(prompt=problem.prompt, responses=[response, response], anchors=anchors, eligible=[True, True])


def test_a_second_run_reads_the_anchors_of_the_first(make_trainer, computed):
    first = train(make_trainer, args=STEPS)
    assert sum(anchors for _, anchors in computed) == 4  # each once in three steps
    computed.clear()
    assert train(make_trainer, args=STEPS) == first
    assert sum(anchors for _, anchors in computed) == 0
    computed.clear()
    train(make_trainer, INITIAL.model_copy(update={"kind": "gradient"}))
    assert sum(anchors for _, anchors in computed) > 0


@pytest.mark.slow
def test_with_a_kl_term_the_reference_pass_has_the_responses_states(make_trainer, computed, monkeypatch):
    """One response is cut off and hidden from TRL's attention: it gets a pass of its own."""
    args = {**STEPS, "beta": 0.1, "max_completion_length": 14, "mask_truncated_completions": True}
    captured = train(make_trainer, args=args)
    ours = sum(responses for responses, _ in computed)
    scored = sum(record.alignment is not None for record in captured)
    assert ours < scored / 2
    monkeypatch.setattr("gar.integrations.trl.initial.InitialPolicy.is_run_by", lambda self, model: False)
    expected = train(make_trainer, args=args)
    assert [r.response for r in captured] == [r.response for r in expected]
    for a, b in zip(captured, expected, strict=True):
        assert a.alignment == (None if b.alignment is None else pytest.approx(b.alignment, abs=1e-5))


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_fresh_adapter_has_the_initial_policy_beneath_it(make_trainer, computed, beta):
    trainer, records = make_trainer(
        signal=INITIAL, peft_config=LORA, args={**STEPS, "beta": beta}, problems=load_arithmetic("train")[:4]
    )
    assert trainer.copied_bytes == 0
    trainer.train()
    assert (sum(responses for responses, _ in computed) == 0) == (beta > 0)
    scorer = GarScorer(*load_embedded(), signal=THINK)
    later = [record for record in records if record.step == 3 and record.alignment is not None]
    assert later
    for record in later:
        score, _ = scorer.score([group_of(load_arithmetic("train")[record.group_index], record.response)])
        assert record.alignment == pytest.approx(score.alignment, abs=1e-5)


def trained_adapter():
    torch.manual_seed(0)
    config = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear", init_lora_weights=False)
    return get_peft_model(load_embedded()[0], config)


@pytest.mark.slow
def test_a_trained_adapter_needs_the_copy_that_trl_makes_with_a_kl_term(make_trainer):
    for options in ({"model": trained_adapter()}, {"peft_config": trained_adapter().peft_config["default"]}):
        with pytest.raises(ConfigError, match="initial, but the adapter has been trained before"):
            make_trainer(signal=INITIAL, **options)
    records = train(make_trainer, model=trained_adapter(), args={**STEPS, "beta": 0.1})
    scorer = GarScorer(trained_adapter(), load_embedded()[1], signal=THINK)
    later = [record for record in records if record.step == 3 and record.alignment is not None]
    for record in later:
        score, _ = scorer.score([group_of(load_arithmetic("train")[record.group_index], record.response)])
        assert record.alignment == pytest.approx(score.alignment, abs=1e-5)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_initial_policy(make_trainer, cache, tmp_path):
    """After a kill the trainer is made of the run's model again, and the checkpoint is loaded into it."""
    args = {**STEPS, "save_strategy": "steps", "save_steps": 2}
    whole = train(make_trainer, args=args)
    shutil.rmtree(cache)
    shutil.rmtree(tmp_path / "out" / "checkpoint-3")
    trainer, rest = make_trainer(signal=INITIAL, args=args, problems=load_arithmetic("train")[:4])
    trainer.train(resume_from_checkpoint=True)
    assert [r for r in whole if r.step == 3] == rest
    assert sum(r.alignment is not None for r in rest) > 4


def initial_name(model: Any) -> str:
    args = SimpleNamespace(sync_ref_model=False, bf16=False, fp16=False, beta=0.1)
    return InitialPolicy(model, args, new_adapter=False).cache_name(INITIAL)


def test_another_configuration_of_the_same_weights_has_anchors_of_its_own():
    def name(**changes) -> str:
        model = load_embedded()[0]
        model.config.update(changes)
        return initial_name(model)

    names = [name(), name(rms_norm_eps=1e-3), name(time_step_limit=(0.0, torch.inf))]  # infinite as in Granite 4
    assert len(set(names)) == 3
    assert name(_name_or_path="elsewhere") == names[0]


def test_another_scale_of_the_same_adapter_has_anchors_of_its_own():
    def name(alpha: int) -> str:
        torch.manual_seed(0)
        config = LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=alpha, target_modules=["q_proj"])
        return initial_name(get_peft_model(load_embedded()[0], config))

    assert name(8) == name(8) != name(16)


def test_what_has_no_initial_policy_is_refused(make_trainer):
    with pytest.raises(ConfigError, match=r"trl.sync_ref_model moves the reference model"):
        make_trainer(signal=INITIAL, args={"beta": 0.1, "sync_ref_model": True})
    with pytest.raises(ConfigError, match="give the loaded model, got 'embedded'"):
        make_trainer(signal=INITIAL, model="embedded")
    for engine in (SLIME, VERL):
        with pytest.raises(ConfigError, match=f"'initial', but {engine.name} has only the current policy"):
            plan_shaping(engine, "gar-grpo", {"signal": INITIAL})
    changed = load_embedded()[0]
    with torch.no_grad():
        changed.model.norm.weight.mul_(2)
    with pytest.raises(ConfigError, match="the reference model that TRL loads by the name of the policy is another"):
        make_trainer(signal=INITIAL, model=changed, args={"beta": 0.1})
