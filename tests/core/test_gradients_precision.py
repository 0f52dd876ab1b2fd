"""Three parties in half precision: the truth in float64, the plain route, ours. Ours must never be the worst.
Then the limits, where p_y nears 0 or 1.

The truth takes the rounded inputs as exact, so that only arithmetic is compared. The plain route is what a released
implementation does: logits in the model's dtype, cross-entropy (on them, or on their float32 copy), autograd.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gar.core import gradient_activation_means
from gar.core import head as head_module
from tests.core.conftest import Case, exact_gradients, make_case, unit_vectors

RESPONSES, TOKENS, VOCAB, WIDTH = 4, 48, 2048, 128


def make_batch(log_odds: tuple[float, float] | None, dtype: torch.dtype) -> Case:
    """Peaked softmax, targets sampled from it; `log_odds` moves each token's ln(p_y / (1 - p_y)) into that range."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(RESPONSES * TOKENS, WIDTH, generator=generator)
    weight = (torch.randn(VOCAB, WIDTH, generator=generator) * 3 / WIDTH**0.5).to(dtype)
    targets = torch.multinomial((hidden @ weight.float().T).softmax(-1), 1, generator=generator)[:, 0]
    if log_odds is not None:
        low, high = log_odds
        wanted = low + (high - low) * torch.rand(len(hidden), generator=generator)
        target_rows = weight.float()[targets]
        missing = wanted + exact_gradients(Case(hidden, weight, targets, targets))[1].float()
        hidden = hidden + (missing / target_rows.square().sum(-1))[:, None] * target_rows
    return Case(hidden.to(dtype), weight, targets, torch.arange(RESPONSES).repeat_interleave(TOKENS))


def true_vectors(batch: Case) -> Tensor:
    u = exact_gradients(batch)[0] * batch.hidden.double()
    return F.normalize(u.reshape(RESPONSES, TOKENS, WIDTH).sum(1), dim=-1)


def plain_vectors(batch: Case, *, upcast_logits: bool) -> Tensor:
    rows = []
    for response in range(RESPONSES):
        mine = batch.response_index == response
        hidden = batch.hidden[mine].detach().requires_grad_()
        logits = F.linear(hidden, batch.weight)
        F.cross_entropy(logits.float() if upcast_logits else logits, batch.target_ids[mine]).backward()
        assert hidden.grad is not None
        rows.append((hidden.grad.double() * hidden.detach().double()).sum(0))
    return F.normalize(torch.stack(rows), dim=-1)


def largest_angle(vectors: Tensor, truth: Tensor) -> float:
    """Largest 1 - cos over the responses, as |a - b|^2 / 2, which keeps its digits where cos rounds to 1."""
    return float((F.normalize(vectors.double(), dim=-1) - truth).square().sum(-1).max() / 2)


# Measured: largest 1 - cos of four responses, by calling the functions of this file on each batch (torch 2.13.0, x86).
#                                           bfloat16                        float16
#                                   plain, logits in          ours   plain, logits in          ours
#   tokens            1 - p_y       bfloat16   float32               float16   float32
#   sampled           7e-2 .. 1      2e-5       2e-5         4e-14    2e-7       2e-7         1e-13
#   mostly confident  3e-10 .. 0.5   6e-4       8e-5         4e-13    1e-5       2e-6         3e-12
#   confident         2e-5 .. 2e-3   2          6e-4         1e-12    0.2        6e-4         3e-12
#   very confident    1e-7 .. 7e-5   2          3e-4         2e-12    2          2e-2         3e-12
#   nearly certain    3e-10 .. 8e-7  2          1            2e-12    0.5        0.5          5e-12
# The plain route forms p - e: once 1 - p_y is below the resolution of p, what is left is rounding (2 is the opposite
# direction, 0.5 a gradient that underflowed to zero).
BATCHES = {
    "sampled": None,
    "mostly confident": (0.0, 25.0),
    "confident": (8.0, 12.0),
    "very confident": (12.0, 18.0),
    "nearly certain": (18.0, 25.0),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", BATCHES)
def test_gradient_activation_vectors_are_not_worse_than_the_plain_route(kind, dtype):
    batch = make_batch(BATCHES[kind], dtype)
    truth = true_vectors(batch)
    ours = largest_angle(unit_vectors(*batch, num_responses=RESPONSES), truth)
    for upcast_logits in (False, True):
        assert ours <= largest_angle(plain_vectors(batch, upcast_logits=upcast_logits), truth)
    # Logits up to 25 carry 25 * 6e-8 in float32: an error of 1.5e-6 per token, 1 - cos = 1e-12 before it averages out.
    # That is 1e5 below the plain route, and below the 1e-6 that a kernel with bfloat16 probabilities reaches.
    assert ours <= 1e-10
    # In storage precision exponentials and the sums of a tile are rounded to bfloat16. Rounded logits would cost 6e-4.
    stored = largest_angle(unit_vectors(*batch, num_responses=RESPONSES, precision="storage"), truth)
    assert stored <= 2e-6  # 4e-7 to 7e-7 measured: 2^-9 on each of many exponentials, which partly cancel


def test_gradient_activation_vectors_in_float32_ignore_what_a_trainer_allows():
    """torch has a switch that rounds float32 products to bfloat16. The signal's products ignore it."""
    batch = make_batch(None, torch.float32)
    expected = unit_vectors(*batch, num_responses=RESPONSES)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(unit_vectors(*batch, num_responses=RESPONSES), expected)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_true_vectors_are_those_of_autograd_where_both_are_exact():
    """The definition confirms the truth above, in float64 where p - e still has its digits."""
    batch = Case(*(t.double() if t.is_floating_point() else t for t in make_batch(None, torch.bfloat16)))
    found = plain_vectors(batch, upcast_logits=False)
    assert largest_angle(found, true_vectors(batch)) <= 1e-28  # (1e-14)^2: float64 in both


# Where p_y nears 0 or 1: one token against float64.

ONE_TOKEN = {"target_ids": torch.tensor([0]), "response_index": torch.tensor([0]), "num_responses": 1}


def two_sided_weight(gap: float) -> Tensor:
    """With h = (1, 0.5, -2): z_0 = gap, and 49 logits within [-1, 1] of 0."""
    generator = torch.Generator().manual_seed(11)
    weight = torch.rand(50, 3, generator=generator) * 0.5 - 0.25
    weight[0] = torch.tensor([gap, 0.0, 0.0])
    return weight


def found_and_true(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of one token with target 0, ours and in float64."""
    case = Case(torch.tensor([[1.0, 0.5, -2.0]]), weight, torch.tensor([0]), torch.tensor([0]))
    found = gradient_activation_means(*case, num_responses=1, signal="gradient")[0]
    return found, exact_gradients(case)[0][0]


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["whole", "tiled"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """Of the weight. A narrow one is multiplied tile by tile."""
    if request.param == torch.bfloat16:
        monkeypatch.setattr(head_module, "_CPU_TILE", 7)
    return request.param


def test_gradient_activation_means_of_confident_tokens_keep_every_digit(dtype):
    """1 - p_y is about 49 exp(-gap): 5e-4, 5e-7, 5e-11, 2e-16, 4e-25. One minus a float32 p_y would be 0 from 18 on."""
    for gap in (11.5, 18.4, 27.6, 40.0, 60.0):
        found, truth = found_and_true(two_sided_weight(gap).to(dtype))
        # exp turns a logit's rounding into a relative error: gap * 6e-8, 4e-6 for 60, and as much for the reference.
        assert (found - truth).norm() <= 1e-5 * truth.norm()
        assert found[0] < 0  # and it still points away from the target's row


def test_gradient_activation_means_of_certain_tokens_are_zero():
    for gap in (66.0, 80.0, 500.0):
        found = gradient_activation_means(torch.ones(1, 3), two_sided_weight(gap), **ONE_TOKEN)
        assert found.tolist() == [[0.0, 0.0, 0.0]]  # not the denormals of exp(-gap - 20), and not 0 / 0
    assert unit_vectors(torch.ones(1, 3), torch.ones(1, 3), **ONE_TOKEN).tolist() == [[0.0] * 3]  # a single word


def test_gradient_activation_means_of_very_unlikely_targets(dtype):
    """The reference is z_y + 20, and float32's exp overflows at 88.7: from log p_y = -108 on there is another one."""
    for gap in (30.0, 79.0, 95.0, 112.0, 150.0, 1000.0):
        found, truth = found_and_true(two_sided_weight(-gap).to(dtype))  # mean of the others less W_y
        assert (found - truth).norm() <= 1e-6 * truth.norm()  # q_v: rounding of logits below 1, and 50 terms


def test_gradient_activation_means_ignore_vocabulary_masked_by_a_bias_of_minus_infinity():
    """Padding rows of an embedding: with or without them the vector is the same."""
    case = make_case()
    bias = torch.zeros(40, dtype=torch.float64)
    bias[37:] = -math.inf
    padded = torch.cat([case.weight, torch.full((3, 8), 9.0, dtype=torch.float64)])
    found = gradient_activation_means(case.hidden, padded, *case[2:], num_responses=4, bias=bias)
    torch.testing.assert_close(found, gradient_activation_means(*case, num_responses=4), rtol=1e-6, atol=1e-9)
