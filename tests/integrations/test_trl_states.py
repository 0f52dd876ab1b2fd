"""A LoRA policy in `GARTrainer`: the source of hidden states, with and without dropout in the adapter."""

import pytest
from peft import LoraConfig

from gar.integrations.trl.states import StateSource
from tests.integrations.conftest import TrainerFactory
from tests.integrations.replay import NotingTrainer

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


def test_adapter_with_dropout_is_scored_in_an_extra_pass(make_trainer):
    for dropout in (0.0, 0.5):
        trainer, _ = make_trainer(
            peft_config=LoraConfig(target_modules=["q_proj"], lora_dropout=dropout), args=TWO_UPDATES
        )
        assert trainer._states.come_from_pass(trainer.model) == (dropout == 0.0)
        assert not trainer._states.come_from_sampling()
