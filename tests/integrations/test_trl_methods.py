"""Every method under TRL on the embedded model: what reaches the optimizer is what the method's formulas say."""

import math
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gar.core import maspo_weights
from gar.data.arithmetic import load_arithmetic
from gar.errors import CollapseError, ConfigError, DataError
from gar.integrations.watchdog import Watchdog
from gar.methods import METHODS
from gar.models.embedded import load_embedded
from gar.records import RolloutRecord
from gar.settings import (
    AdvantageSettings,
    SignalSettings,
    WatchdogSettings,
)
from gar.types import Anchor, Problem
from tests.integrations.conftest import TrainerFactory

TRL_LOSS = {"loss_type": "dapo"}  # TRL's default: a method's own fields go over it
ROLLOUT_METHODS = [name for name, method in METHODS.items() if method.trainer is None]


def train(make_trainer: TrainerFactory, method: str, args: dict | None = None, **options) -> list[RolloutRecord]:
    trainer, records = make_trainer(method=method, args=dict(METHODS[method].trl) | (args or {}), **options)
    trainer.train()
    return records


@pytest.mark.parametrize("method", ROLLOUT_METHODS)
def test_method_trains_with_two_updates_per_rollout(make_trainer: TrainerFactory, method: str):
    args = dict(METHODS[method].trl) | {"num_iterations": 2, "max_steps": 2}
    trainer, records = make_trainer(method=method, args=args)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.train()
    assert len(records) == 32  # one generation, two updates
    assert any(not torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())
    assert all(math.isfinite(record.advantage) and math.isfinite(record.reward) for record in records)
    assert max(abs(record.advantage) for record in records) > 0
    scored = [record for record in records if record.alignment is not None]
    assert bool(scored) == (METHODS[method].alignment is not None)
    with_vectors = [record for record in records if record.signal_norm is not None]
    assert bool(with_vectors) == (METHODS[method].alignment not in (None, "text", "length") or method == "g2rl")
    if method in ("g2rl", "alignment-only"):
        assert len(with_vectors) == sum(record.num_scored_tokens > 0 for record in records)
    elif scored:
        assert all(record.eligible for record in scored)


# REINFORCE++.


@pytest.mark.parametrize(("method", "ddof"), [("reinforce-plus-plus", 0), ("reinforce-plus-plus-baseline", 1)])
def test_reinforce_plus_plus_advantages_equal_an_independent_reference(
    make_trainer: TrainerFactory, method: str, ddof: int
):
    """Token by token in plain Python: each response's reward, repeated over its tokens, whitened over the batch."""
    records = train(make_trainer, method, advantage=AdvantageSettings(ddof=ddof))
    means = {}
    for group in {record.group_index for record in records}:
        rewards = [record.reward for record in records if record.group_index == group]
        means[group] = sum(rewards) / len(rewards)
    values = [r.reward - (means[r.group_index] if method.endswith("baseline") else 0.0) for r in records]
    tokens = [value for value, record in zip(values, records, strict=True) for _ in range(record.num_tokens)]
    mean = sum(tokens) / len(tokens)
    variance = sum((value - mean) ** 2 for value in tokens) / (len(tokens) - ddof)
    expected = [(value - mean) / math.sqrt(variance + 1e-8) for value in values]
    assert [record.advantage for record in records] == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) > 1


def test_estimator_of_the_run_goes_over_that_of_the_method(make_trainer: TrainerFactory):
    own = train(make_trainer, "gar-reinforce-plus-plus")
    chosen = train(make_trainer, "gar-grpo", advantage=AdvantageSettings(estimator="reinforce-plus-plus"))
    assert [record.advantage for record in own] == [record.advantage for record in chosen]
    grouped = train(make_trainer, "gar-reinforce-plus-plus", advantage=AdvantageSettings(estimator="group"))
    assert [record.advantage for record in grouped] == pytest.approx(
        [record.advantage for record in train(make_trainer, "gar-grpo")], abs=1e-5
    )


# The loss: TRL's own pass, against log-probabilities of the model's own logits.


def loss_inputs(make_trainer: TrainerFactory, args: dict, **options):
    """A trainer, and TRL's inputs of one micro-batch whose old log-probabilities lie far from the current ones."""
    trainer, _ = make_trainer(args={"num_iterations": 2, "gradient_checkpointing": False} | args, **options)
    trainer.model.train()
    rows = [{"prompt": trainer._problems[i].prompt, "problem_index": i} for i in range(4) for _ in range(8)]
    trainer.current_gradient_accumulation_steps = 1
    inputs = trainer._generate_and_score_completions(rows)
    generator = torch.Generator().manual_seed(0)
    shape = inputs["old_per_token_logps"].shape
    inputs["old_per_token_logps"] += 0.8 * torch.randn(shape, generator=generator)
    inputs["advantages"] = torch.randn(len(rows), generator=generator) * 3
    return trainer, inputs


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
    trainer, inputs = loss_inputs(make_trainer, TRL_LOSS, method="maspo")
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


def test_maspo_refuses_what_would_stand_beside_its_gate(make_trainer: TrainerFactory):
    for args, field in (
        ({"importance_sampling_level": "sequence"}, "trl.importance_sampling_level is sequence"),
        ({"delta": 4.0}, "trl.delta is 4.0"),
        ({"num_iterations": 1}, "updates_per_rollout is 1.0"),
    ):
        with pytest.raises(ConfigError, match=field):
            make_trainer(method="maspo", args={**TRL_LOSS, "num_iterations": 2, **args})


@pytest.mark.parametrize("method", ["dr-grpo", "dapo", "maspo"])
def test_fields_of_a_method_hold_in_python(make_trainer: TrainerFactory, method: str):
    trainer, records = make_trainer(method=method, args={**TRL_LOSS, "num_iterations": 2, "max_steps": 2})
    fields = METHODS[method].trl
    assert trainer.loss_type == fields["loss_type"]
    assert trainer.epsilon_low == fields.get("epsilon", 0.2)
    assert trainer.epsilon_high == fields.get("epsilon_high", 0.2)
    trainer.train()
    for group in by_group(records).values():
        rewards = torch.tensor([record.reward for record in group])
        spread = 1.0 if method == "dr-grpo" else float(rewards.std()) + 1e-4
        expected = ((rewards - rewards.mean()) / spread).tolist()
        assert [record.advantage for record in group] == pytest.approx(expected, abs=1e-4)


# Controls.


def by_group(records: list[RolloutRecord]) -> dict[int, list[RolloutRecord]]:
    groups = defaultdict(list)
    for record in records:
        groups[record.group_index].append(record)
    return groups


def test_shuffled_anchor_of_the_only_problem_is_gar(make_trainer: TrainerFactory):
    problems = load_arithmetic("train")[:1]
    args = {"per_device_train_batch_size": 8}
    ours = train(make_trainer, "gar-grpo", args, problems=problems)
    shuffled = train(make_trainer, "anchor-shuffled", args, problems=problems)
    assert shuffled == ours
    assert any(record.alignment is not None for record in ours)


def test_shuffled_anchors_are_those_of_other_problems(make_trainer: TrainerFactory):
    """The same rollouts with the anchors exchanged by hand: each problem has the one the shuffle gave it."""
    problems = load_arithmetic("train")[:2]
    args = {"per_device_train_batch_size": 16}
    shuffled = train(make_trainer, "anchor-shuffled", args, problems=problems)
    ours = train(make_trainer, "gar-grpo", args, problems=problems)
    assert [record.response for record in shuffled] == [record.response for record in ours]
    pairs = [(a.alignment, b.alignment) for a, b in zip(shuffled, ours, strict=True) if b.alignment is not None]
    assert pairs
    assert all(a != pytest.approx(b, abs=1e-4) for a, b in pairs)


def test_random_anchor_is_the_same_whenever_a_problem_comes_up(make_trainer: TrainerFactory):
    problems = load_arithmetic("train")[:4]
    args = {"max_steps": 2, "learning_rate": 0.0}
    records = train(make_trainer, "anchor-random", args, problems=problems)
    seen = defaultdict(set)
    for record in records:
        if record.alignment is not None:
            seen[record.group_index, record.response].add(round(record.alignment, 5))
    assert seen
    assert all(len(values) == 1 for values in seen.values())
    assert all(abs(max(values)) < 0.5 for values in seen.values())  # 128 dimensions: the standard deviation is 0.09


def test_hidden_cosine_is_gar_with_hidden_states(make_trainer: TrainerFactory):
    hidden = SignalSettings(kind="hidden")
    assert train(make_trainer, "hidden-cosine") == train(make_trainer, "gar-grpo", signal=hidden)


def test_data_that_a_method_or_a_batch_lacks_are_an_error(make_trainer: TrainerFactory):
    """Of too few problems TRL itself drops the incomplete batch, trains for no step and says nothing."""
    bare = [Problem(id=p.id, prompt=p.prompt, answer=p.answer) for p in load_arithmetic("train")[:4]]
    with pytest.raises(DataError, match="needs expert solutions"):
        make_trainer(method="length", problems=bare)
    make_trainer(method="g2rl", problems=bare)
    with pytest.raises(DataError, match=r"asks for 4 problems, got 3"):
        make_trainer(problems=load_arithmetic("train")[:3])


def test_anchors_that_cannot_be_scored_count_as_missing(make_trainer: TrainerFactory):
    problems = load_arithmetic("train")[:16]
    empty = [replace(problem, anchors=(Anchor(text="<eos>"),)) for problem in problems[:8]]
    with pytest.warns(UserWarning, match="Left out: 8 expert solutions without a token to score"):
        trainer, records = make_trainer(problems=[*empty, *problems[8:]], args={"max_steps": 4})
    trainer.train()
    lost = {problem.id for problem in empty}
    assert {record.anchor for record in records if record.problem_id in lost} == {False}
    assert {record.anchor for record in records if record.problem_id not in lost} == {True}
    share = sum(row["gar/no_anchor_fraction"] for row in trainer.state.log_history if "gar/no_anchor_fraction" in row)
    assert share / 4 == sum(record.problem_id in lost for record in records) / len(records) > 0
    with pytest.raises(DataError, match="no problem is left with an expert solution that can be scored"):
        make_trainer(problems=empty)


def test_responses_beyond_the_context_are_counted_and_not_scored(make_trainer: TrainerFactory):
    """Rotary positions go on beyond the limit without a word; the policy was never trained there."""
    model, _ = load_embedded()
    model.config.max_position_embeddings = 30  # a third of the anchors need 36
    with pytest.warns(UserWarning, match="expert solutions that with their prompt exceed the model's context"):
        trainer, records = make_trainer(model=model, args={"max_steps": 4})
    trainer.train()
    lengths = [record.prompt_tokens + record.num_tokens for record in records]
    scored = [length for record, length in zip(records, lengths, strict=True) if record.alignment is not None]
    assert scored
    # a response ends in up to two tags and an end token behind its scored part
    assert max(scored) <= model.config.max_position_embeddings + 8
    shares = [row["gar/too_long_fraction"] for row in trainer.state.log_history if "gar/too_long_fraction" in row]
    assert max(shares) > 0


def test_the_watchdog_serves_a_trainer_of_ones_own(make_trainer: TrainerFactory):
    watchdog = Watchdog(WatchdogSettings(mode="stop", steps=2))
    trainer, _ = make_trainer(args={"max_steps": 4, "max_completion_length": 2})
    trainer._on_rollouts = watchdog.look
    with pytest.warns(UserWarning, match="WATCHDOG: For 2 steps"), pytest.raises(CollapseError, match="every response"):
        trainer.train()
    assert trainer.state.global_step <= 2
