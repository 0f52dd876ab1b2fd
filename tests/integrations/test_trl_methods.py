"""Methods under TRL on the embedded model: the optimizer gets what the method's formulas give."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gar.core import group_advantages, maspo_weights, reinforce_plus_plus_advantages
from gar.data.arithmetic import load_arithmetic
from gar.errors import DataError
from gar.methods import METHODS
from gar.models.embedded import load_embedded
from gar.settings import AdvantageSettings
from gar.types import Anchor
from tests.integrations.conftest import TrainerFactory
from tests.support.errors import raises

TRL_LOSS = {"loss_type": "dapo"}  # TRL's default, which a method's own fields override


# Methods that differ in where vectors, advantages or fields of TRL come from.
@pytest.mark.parametrize("method", ["dr-grpo", "reinforce-plus-plus-baseline", "g2rl"])
def test_method_trains_with_two_updates_per_rollout(make_trainer: TrainerFactory, method: str):
    """Records, advantages by the method's estimator, and its fields of TRL."""
    paper = AdvantageSettings(ddof=0, eps=1e-6) if method == "dr-grpo" else None  # it divides by no deviation
    args = {**TRL_LOSS, "num_iterations": 2, "max_steps": 2}
    trainer, records = make_trainer(method=method, args=args, advantage=paper)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.train()
    assert len(records) == 32  # one generation, two updates
    assert any(not torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())
    assert all(record.alignment is None for record in records)  # none of these compares with an anchor
    scored = [record for record in records if record.num_scored_tokens > 0] if method == "g2rl" else []
    assert [record for record in records if record.signal_norm is not None] == scored
    chosen, fields = METHODS[method], METHODS[method].trl
    assert trainer.loss_type == fields.get("loss_type", "dapo")
    rewards = torch.tensor([record.reward for record in records], dtype=torch.float64)
    groups, counts = (torch.tensor([getattr(r, name) for r in records]) for name in ("group_index", "num_tokens"))
    if chosen.estimator == "group":
        scale = "none" if fields.get("scale_rewards") == "none" else "std"
        expected = group_advantages(rewards, groups, scale=scale, ddof=1, eps=1e-4)
    else:
        expected = reinforce_plus_plus_advantages(rewards, counts, groups, baseline=True, ddof=1, eps=1e-8)
    assert float(expected.abs().max()) > 0
    assert [record.advantage for record in records] == pytest.approx(expected.tolist(), abs=1e-4)


def own_log_probs(model, inputs: dict[str, Tensor]) -> Tensor:
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    length = inputs["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -length - 1 : -1]
    return F.log_softmax(logits, dim=-1).gather(-1, inputs["completion_ids"][..., None])[..., 0]


def gradients(model, loss: Tensor) -> Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_maspo_loss_and_gradient_are_those_of_its_formula(make_trainer: TrainerFactory):
    trainer, _ = make_trainer(args={"num_iterations": 2} | TRL_LOSS, method="maspo")
    trainer.model.train()
    rows = [trainer.train_dataset[i] for i in range(4) for _ in range(8)]
    trainer.current_gradient_accumulation_steps = 1
    inputs = trainer._generate_and_score_completions(rows)
    generator = torch.Generator().manual_seed(0)
    shape = inputs["old_per_token_logps"].shape
    inputs["old_per_token_logps"] += 0.8 * torch.randn(shape, generator=generator)  # far from the current ones
    inputs["advantages"] = torch.randn(len(rows), generator=generator) * 3
    given = inputs["advantages"].clone()
    found = trainer._compute_loss(trainer.model, inputs)
    found_gradient = gradients(trainer.model, found)
    assert torch.equal(inputs["advantages"], given)  # the next update over the same rollouts sees them unweighted

    log_probs, old = own_log_probs(trainer.model, inputs), inputs["old_per_token_logps"]
    mask = inputs["completion_mask"]
    advantages = given[:, None]
    weights = maspo_weights(log_probs.detach(), old, advantages)
    inside = weights[mask.bool()]
    assert float(inside.min()) < 0.9  # the gate is at work
    assert float(inside.max()) == 1.0
    losses = -(advantages * weights) * (log_probs - old).exp()
    expected = (losses * mask).sum() / mask.sum()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(found_gradient, gradients(trainer.model, expected), rtol=1e-3, atol=1e-5)


def test_data_that_a_method_or_a_batch_lacks_are_an_error(make_trainer: TrainerFactory):
    """With too few problems TRL itself would drop the incomplete batch and train for no step."""
    bare = [replace(problem, anchors=()) for problem in load_arithmetic("train")[:4]]
    nothing_to_score = [replace(problem, anchors=(Anchor(text="<eos>"),)) for problem in bare]
    for problems, code in ((bare, "no-anchors"), (bare[:3], "few-problems"), (nothing_to_score, "no-anchors")):
        with raises(DataError, code):
            make_trainer(problems=problems)


def test_anchors_that_are_missing_or_cannot_be_scored_earn_no_bonus(make_trainer: TrainerFactory):
    *whole, none, empty = load_arithmetic("train")[:4]
    problems = [*whole, replace(none, anchors=()), replace(empty, anchors=(Anchor(text="<eos>"),))]
    with pytest.warns(UserWarning, match="Of 3 expert solutions read, 1 have no token to score"):
        trainer, records = make_trainer(problems=problems)
    trainer.train()
    assert all(r.anchor == (r.group_index < 2) for r in records)
    assert all(r.alignment is None and r.bonus == 0.0 for r in records if not r.anchor)
    assert any(record.alignment is not None for record in records)
    assert trainer.state.log_history[0]["gar/no_anchor_fraction"] == 0.5
    model, _ = load_embedded()
    model.config.max_position_embeddings = 30  # a third of the anchors need 36
    with pytest.warns(UserWarning, match="18 exceed the model's context with their prompt"):
        make_trainer(model=model, args={"max_completion_length": 8})
