"""LUFFY and CHORD: their formulas by hand, and under TRL by a second route from the model's own logits."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from gar.data.arithmetic import load_arithmetic
from gar.errors import ConfigError, DataError
from gar.integrations.trl import GARTrainer
from gar.models.embedded import load_embedded
from gar.reader import Reader
from gar.settings import SignalSettings, VerifySettings
from gar.types import Anchor
from paper.methods.expert_losses import imitation_weight, off_policy_token_losses
from paper.methods.expert_trainer import ChordTrainer, LuffyTrainer
from paper.methods.experts import ChordSettings
from paper.methods.supervised_trainer import solution_rows
from tests.integrations.conftest import TrainerFactory
from tests.support.errors import raises

GROUPS = 4
KINDS = {"luffy": LuffyTrainer, "chord": ChordTrainer}

pytestmark = pytest.mark.paper


def micro_batch(make_trainer: TrainerFactory, method: str, **options):
    """A trainer and TRL's inputs of one whole batch, four groups of eight."""
    trainer, records = make_trainer(kind=KINDS[method], **options)
    trainer.model.train()
    rows = [trainer.train_dataset[i] for i in range(GROUPS) for _ in range(8)]
    trainer.current_gradient_accumulation_steps = 1
    return trainer, trainer._generate_and_score_completions(rows), records


def expert_log_probs(trainer, group: int) -> torch.Tensor:
    """One expert solution and its end token, alone and unpadded, in float64 after the logits."""
    tokenizer, problem = trainer.processing_class, trainer._problems.all[group]
    prompt = tokenizer(problem.prompt)["input_ids"]
    ids = [*tokenizer(problem.anchors[0].text)["input_ids"], tokenizer.eos_token_id]
    logits = trainer.model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].double()
    return F.log_softmax(logits, dim=-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]


def responses_loss(trainer, inputs) -> torch.Tensor:
    """TRL's loss of the same inputs."""
    return super(GARTrainer, trainer)._compute_loss(trainer.model, dict(inputs))


@pytest.mark.parametrize("gamma", [0.1, 0.5])
def test_off_policy_token_losses_and_their_gradient_by_hand(gamma):
    log_probs = torch.linspace(-30, 0, 61, dtype=torch.float64).repeat(2, 1).requires_grad_()
    advantages = torch.tensor([[1.5], [-1.0]], dtype=torch.float64, requires_grad=True)
    losses = off_policy_token_losses(log_probs, advantages, gamma=gamma)
    losses.sum().backward()
    p, a = log_probs.detach().exp(), advantages.detach()
    torch.testing.assert_close(losses.detach(), -a * p / (p + gamma), rtol=1e-12, atol=0)
    torch.testing.assert_close(log_probs.grad, -a * gamma * p / (p + gamma) ** 2, rtol=1e-12, atol=0)
    assert advantages.grad is None


def test_imitation_weight_by_hand():
    assert imitation_weight(0, 200) == pytest.approx(0.9, abs=1e-15)
    assert imitation_weight(50, 200) == pytest.approx(0.05 + 0.85 * (1 + math.sqrt(0.5)) / 2, abs=1e-15)
    assert imitation_weight(200, 200) == imitation_weight(10**6, 200) == imitation_weight(0, 0) == 0.05
    weights = [imitation_weight(step, 30, peak=1.0, valley=0.0) for step in range(40)]
    assert weights == sorted(weights, reverse=True)
    assert (weights[0], weights[30]) == (1.0, 0.0)


def test_luffy_loss_has_the_expert_for_a_ninth_member_of_each_group(make_trainer: TrainerFactory):
    trainer, inputs, _ = micro_batch(make_trainer, "luffy")
    loss = trainer._compute_loss(trainer.model, inputs)
    total = responses_loss(trainer, inputs).double() * GROUPS * 8
    for group in range(GROUPS):
        p = expert_log_probs(trainer, group).exp()
        advantage = inputs["expert_advantages"][inputs["expert_group"] == group]
        assert len(advantage.unique()) == 1
        total = total - float(advantage[0]) * (p / (p + 0.1)).mean()
    # float32 forward passes, padded in one batch and unpadded
    torch.testing.assert_close(loss.double(), total / (GROUPS * 9), rtol=1e-4, atol=1e-6)


def test_luffy_advantages_are_those_of_groups_with_the_expert_in_them(make_trainer: TrainerFactory):
    trainer, inputs, records = micro_batch(make_trainer, "luffy")
    checked = 0
    for group in range(GROUPS):
        rewards = [record.reward for record in records if record.group_index == group]
        answer = trainer._problems.all[group].answer
        expert = float(int(answer) % 2 == 0)  # the verifier of these tests says so, of experts too
        members = [*rewards, expert]
        mean = sum(members) / 9
        deviation = math.sqrt(sum((member - mean) ** 2 for member in members) / 8)
        expected = [(member - mean) / (deviation + 1e-4) for member in members]
        here = inputs["expert_group"] == group
        assert inputs["advantages"][here].tolist() == pytest.approx(expected[:8], abs=1e-5)
        assert inputs["expert_advantages"][here].tolist() == pytest.approx([expected[8]] * 8, abs=1e-5)
        checked += deviation > 0
    assert checked


def test_chord_loss_mixes_responses_and_imitation(make_trainer: TrainerFactory):
    trainer, inputs, _ = micro_batch(make_trainer, "chord", args={"max_steps": 10})
    imitation = torch.stack([-expert_log_probs(trainer, group).mean() for group in range(GROUPS)]).mean()
    plain = responses_loss(trainer, inputs).double()
    for step, weight in ((0, 0.9), (3, imitation_weight(3, 5)), (5, 0.05), (9, 0.05)):
        trainer.state.global_step, trainer.state.max_steps = step, 10
        loss = trainer._compute_loss(trainer.model, inputs)
        torch.testing.assert_close(loss.double(), (1 - weight) * plain + weight * imitation, rtol=1e-4, atol=1e-6)
    assert trainer._metrics["train"]["gar/imitation_weight"] == pytest.approx([0.9, imitation_weight(3, 5), 0.05, 0.05])
    num_tokens = sum(len(expert_log_probs(trainer, group)) for group in range(GROUPS))
    assert trainer._metrics["train"]["gar/expert_tokens"] == [num_tokens] * 4
    trainer._fall, trainer.state.global_step = ChordSettings(peak=0.2, valley=0.0, decay=1.0), 5
    trainer._compute_loss(trainer.model, inputs)
    assert trainer._metrics["train"]["gar/imitation_weight"][-1] == pytest.approx(0.1)
    with pytest.raises(ConfigError):
        ChordSettings(peak=0.0)


@pytest.mark.parametrize("method", ["luffy", "chord"])
def test_loss_of_a_batch_is_the_sum_over_its_micro_batches(make_trainer: TrainerFactory, method: str):
    """In the order of the groups and mixed; two of the four groups have an expert solution."""
    problems = load_arithmetic("train")[:64]
    problems[2:GROUPS] = [replace(problem, anchors=()) for problem in problems[2:GROUPS]]
    trainer, inputs, _ = micro_batch(make_trainer, method, problems=problems)
    trainer.state.max_steps = 10
    whole = trainer._compute_loss(trainer.model, inputs)
    trainer.current_gradient_accumulation_steps = 8
    rows = torch.arange(GROUPS * 8)
    for order in (rows, rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]):
        losses = []
        for part in order.chunk(8):
            trainer.accelerator.gradient_state._set_sync_gradients(len(losses) == 7)
            micro = {name: value[part] if value.dim() else value for name, value in inputs.items()}
            losses.append(trainer._compute_loss(trainer.model, micro))
        torch.testing.assert_close(sum(losses), whole, rtol=1e-4, atol=1e-6)  # padded in other batches
    num_tokens = sum(len(expert_log_probs(trainer, group)) for group in range(2))
    assert trainer._metrics["train"]["gar/expert_tokens"] == [num_tokens] * 3


def test_solution_rows_are_prompt_solution_and_end_token():
    _, tokenizer = load_embedded()
    first, second, bare = load_arithmetic("train")[:3]
    second = replace(second, anchors=(*second.anchors, Anchor(text="<think> [ ? = 1 ] </think> <answer> 1 </answer>")))
    reader = Reader.from_settings(tokenizer, SignalSettings(), VerifySettings(), context=60)
    rows = solution_rows([first, second, replace(bare, anchors=())], tokenizer, reader)
    shown = [(first, first.anchors[0]), *((second, anchor) for anchor in second.anchors)]
    for row, (problem, anchor) in zip(rows, shown, strict=True):
        assert tokenizer.decode(row["input_ids"]) == " ".join([*problem.prompt, anchor.text, "<eos>"])
        assert row["completion_mask"] == [0] * len(problem.prompt) + [1] * (len(row["input_ids"]) - len(problem.prompt))
    with raises(DataError):
        solution_rows([replace(bare, anchors=())], tokenizer, reader)
