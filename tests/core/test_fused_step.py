"""The fused step against the separate path, on a real Qwen3: the same rewards, the same parameters after each step."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from gar.core import (
    alignment_scores,
    gradient_activation_means,
    gradient_aligned_rewards,
    group_advantages,
    unit_rows,
)
from gar.core.fused_step import head_backward, head_pass, response_means

GROUPS, SIZE, PROMPT, LENGTH, VOCAB, STEPS = 3, 4, 5, 12, 60, 4
RESPONSES = GROUPS * SIZE
GROUP_INDEX = torch.arange(GROUPS).repeat_interleave(SIZE)
# Mixed with a badly formatted response, all correct (silent under the outcome), all wrong (silent for good).
ELIGIBLE = torch.tensor([1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=torch.bool)
PENALTY = torch.tensor([0, 0, -0.6, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=torch.float64)


def make_model(*, tied: bool, checkpointing: bool) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, tie_word_embeddings=tied, initializer_range=0.3,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


class Batch:
    """Prompts with responses of unequal length, and an expert solution per group."""

    def __init__(self, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(VOCAB, (RESPONSES, PROMPT + LENGTH), generator=generator)
        lengths = torch.randint(4, LENGTH + 1, (RESPONSES,), generator=generator)
        in_response = torch.arange(LENGTH) < lengths[:, None]
        self.index, self.columns = in_response.nonzero(as_tuple=True)
        self.targets = self.tokens[self.index, PROMPT + self.columns]
        self.scored = (self.columns >= 1).nonzero()[:, 0]  # a span that leaves out each response's first token
        self.counts = lengths
        self.anchors = torch.randint(VOCAB, (GROUPS, PROMPT + LENGTH), generator=generator)

    def hidden(self, model: Qwen3ForCausalLM) -> Tensor:
        states = model.model(input_ids=self.tokens, use_cache=False).last_hidden_state
        return states[self.index, PROMPT + self.columns - 1]

    @torch.no_grad()
    def anchor_vectors(self, model: Qwen3ForCausalLM) -> Tensor:
        states = model.model(input_ids=self.anchors, use_cache=False).last_hidden_state[:, PROMPT - 1 : -1]
        index = torch.arange(GROUPS).repeat_interleave(LENGTH)
        targets = self.anchors[:, PROMPT:].flatten()
        weight = model.lm_head.weight.detach()
        return unit_rows(gradient_activation_means(states.flatten(0, 1), weight, targets, index, num_responses=GROUPS))

    def rewards_and_factors(self, means: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        alignment = alignment_scores(unit_rows(means), anchors[GROUP_INDEX]).double()
        rewards = gradient_aligned_rewards(ELIGIBLE, alignment, PENALTY, GROUP_INDEX)
        advantages = group_advantages(rewards, GROUP_INDEX, scale="std", ddof=0, eps=1e-6)
        return rewards, (advantages / (RESPONSES * self.counts)).float()


def separate_step(model: Qwen3ForCausalLM, batch: Batch) -> Tensor:
    """A pass for the signal, then cross-entropy under autograd."""
    weight = model.lm_head.weight
    with torch.no_grad():
        hidden = batch.hidden(model)[batch.scored]
    means = gradient_activation_means(
        hidden, weight.detach(), batch.targets[batch.scored], batch.index[batch.scored], num_responses=RESPONSES
    )
    rewards, factors = batch.rewards_and_factors(means, batch.anchor_vectors(model))
    logits = F.linear(batch.hidden(model), weight)
    losses = F.cross_entropy(logits, batch.targets, reduction="none")
    (factors[batch.index] * losses).sum().backward()
    return rewards


def fused_step(model: Qwen3ForCausalLM, batch: Batch) -> Tensor:
    weight = model.lm_head.weight
    hidden = batch.hidden(model)
    found = head_pass(hidden, weight, batch.targets)
    means = response_means(found, hidden, batch.index, batch.scored, num_responses=RESPONSES)
    rewards, factors = batch.rewards_and_factors(means, batch.anchor_vectors(model))
    head_backward(found, hidden, weight, batch.targets, batch.index, factors)
    return rewards


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_fused_step_equals_the_separate_path(tied, checkpointing):
    separate = make_model(tied=tied, checkpointing=checkpointing)
    fused = copy.deepcopy(separate)
    models = {separate_step: separate, fused_step: fused}
    # Plain gradient descent: Adam would blow up the rounding of gradients that are zero in exact arithmetic.
    optimizers = {step: torch.optim.SGD(model.parameters(), lr=0.5) for step, model in models.items()}
    for number in range(STEPS):
        rewards = {}
        for step, model in models.items():
            optimizers[step].zero_grad()
            rewards[step] = step(model, Batch(number))
            optimizers[step].step()
        torch.testing.assert_close(rewards[fused_step], rewards[separate_step], rtol=0, atol=1e-5)
        assert len(rewards[fused_step][SIZE : 2 * SIZE].unique()) > 1  # the all-correct group is not silent
        for name, parameter in separate.named_parameters():
            torch.testing.assert_close(fused.get_parameter(name), parameter, rtol=1e-4, atol=2e-6, msg=name)
    start = make_model(tied=tied, checkpointing=False).state_dict()
    assert (
        max(float((fused.state_dict()[name] - start[name]).abs().max()) for name in start) > 0.01
    )  # it went somewhere


def test_head_pass_gives_the_log_probs_of_log_softmax():
    generator = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(30, 8, generator=generator) * 3, torch.randn(50, 8, generator=generator)
    hidden[0] *= 40  # log p_y far below -108
    targets = torch.randint(50, (30,), generator=generator)
    expected = (hidden.double() @ weight.double().T).log_softmax(-1)[torch.arange(30), targets]
    found = head_pass(hidden, weight, targets)
    torch.testing.assert_close(found.log_probs.double(), expected, rtol=1e-5, atol=1e-5)


def test_head_backward_refuses_hidden_states_without_a_graph():
    hidden, weight, ids = torch.ones(2, 4), torch.ones(5, 4), torch.tensor([0, 1])
    found = head_pass(hidden, weight, ids)
    with pytest.raises(ValueError, match="hidden has no graph"):
        head_backward(found, hidden, weight, ids, ids, torch.ones(2))
    with pytest.raises(ValueError, match="Is there a factor for each response"):
        head_backward(found, hidden.requires_grad_(), weight, ids, ids, torch.ones(1))


def test_head_pass_of_nothing_is_empty():
    found = head_pass(torch.ones(0, 4), torch.ones(5, 4), torch.zeros(0, dtype=torch.long))
    assert [len(part) for part in found] == [0, 0, 0, 0]
