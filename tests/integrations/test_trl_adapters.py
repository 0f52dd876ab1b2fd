"""A LoRA policy in `GARTrainer`: whose hidden states the vectors come from, with and without dropout in the adapter."""

import pytest
from peft import LoraConfig

from gar.integrations.trl.rollouts import RolloutBatch
from gar.integrations.trl.states import StateSource
from tests.integrations.conftest import TrainerFactory

# Two updates per generation, so TRL computes old log-probs; a KL weight, so it runs the model without adapter as well.
TWO_UPDATES = {"steps_per_generation": 2, "per_device_train_batch_size": 16, "num_generations": 8, "beta": 0.1}


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each pass that hidden states are taken from."""
    passes: list[int] = []
    take = RolloutBatch.take_hidden

    def count(self, parts, settings, first_column, hidden, **kwargs) -> None:
        passes.append(len(hidden))
        take(self, parts, settings, first_column, hidden, **kwargs)

    monkeypatch.setattr(RolloutBatch, "take_hidden", count)
    return passes


def alignments(make_trainer: TrainerFactory) -> dict[str, float]:
    """Of one step with an adapter that is not zero at the start, by prompt and response."""
    config = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear", init_lora_weights=False)
    trainer, records = make_trainer(peft_config=config, args=TWO_UPDATES)
    targets = trainer.model.peft_config["default"].target_modules
    assert targets == sorted(targets), "PEFT's set would be written in another order by each process"
    trainer.train()
    return {f"{r.prompt}{r.response}": r.alignment for r in records if r.alignment is not None}


def test_captured_vectors_are_the_adapters_and_not_the_references(make_trainer, captured, monkeypatch):
    found = alignments(make_trainer)
    assert sum(captured) == 32  # the pass of the policy, not that of the reference
    monkeypatch.setattr(StateSource, "_computes_old_logps", lambda self: False)
    sampled = alignments(make_trainer)  # states of sampling
    assert sum(captured) == 32 + 32
    monkeypatch.setattr("gar.integrations.trl.states.MOST_CAPTURED_BYTES", 0)
    expected = alignments(make_trainer)  # a forward pass of our own
    assert sum(captured) == 32 + 32
    assert len(found) > 5
    # Float32 sums over other paddings.
    assert found == pytest.approx(expected, abs=1e-5)
    assert sampled == pytest.approx(expected, abs=1e-5)


def test_adapter_with_dropout_is_scored_in_a_pass_of_its_own(make_trainer):
    for dropout in (0.0, 0.5):
        trainer, _ = make_trainer(
            peft_config=LoraConfig(target_modules=["q_proj"], lora_dropout=dropout), args=TWO_UPDATES
        )
        assert trainer._states.come_from_pass(trainer.model) == (dropout == 0.0)
        assert not trainer._states.come_from_sampling()
