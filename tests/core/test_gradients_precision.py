"""Three parties in half precision: the truth in float64, the plain route, ours. Ours must never be the worst.

The truth takes the rounded inputs as exact, so that only arithmetic is compared. The plain route is what a released
implementation does: logits in the model's dtype, cross-entropy (on them, or on their float32 copy), autograd.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.core.conftest import Case, exact_gradients, unit_vectors

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
