"""The output layer's kernel against its definition: gradients by the head as whole [vocab, hidden] matrices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paper.analyses.tangent_kernel import kernel_decomposition, loss_after_head_step, output_layer_kernel

pytestmark = pytest.mark.paper

VOCAB, WIDTH = 5, 3


def sequence(seed: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Head, hidden states and tokens, float64."""
    generator = torch.Generator().manual_seed(seed)
    head = torch.randn(VOCAB, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    hidden = torch.randn(tokens, WIDTH, dtype=torch.float64, generator=generator)
    return head, hidden, torch.randint(VOCAB, (tokens,), generator=generator)


def errors(head: torch.Tensor, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.softmax(hidden @ head.T, -1) - torch.eye(VOCAB, dtype=torch.float64)[targets]


def head_gradient(head: torch.Tensor, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    leaf = head.clone().requires_grad_()
    torch.nn.functional.cross_entropy(hidden @ leaf.T, targets).backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize(("tokens", "others"), [(1, 1), (4, 2), (3, 7)])
def test_output_layer_kernel_agrees_with_autograd(tokens, others):
    one, two = sequence(1, tokens), sequence(2, others)
    expected = (head_gradient(*one) * head_gradient(*two)).sum()
    found = output_layer_kernel(errors(*one), one[1], errors(*two), two[1])
    torch.testing.assert_close(found, expected)


def test_kernel_decomposition_bounds_by_hand():
    # Errors 2 and 0: mean 1, k 1. Others 3 and 1: mean 2, k 1. B_d 2. Hidden 1, 3 (mean 2) and 2, 2: B_h 2, at most 3.
    parts = kernel_decomposition(
        *(torch.tensor(rows)[:, None] for rows in ([2.0, 0.0], [1.0, 3.0], [3.0, 1.0], [2.0, 2.0]))
    )
    assert (parts.kernel.item(), parts.mean_field.item(), parts.remainder.item()) == (4, 8, -4)
    assert parts.printed_bound.item() == 2**2 * 1 * 1 + 2 * (1 + 1) * 2
    assert parts.printed_bound_of_largest.item() == 3**2 * 1 * 1 + 2 * (1 + 1) * 3
    assert parts.bound.item() == 3**2 * (1 * 1 + 2 * (1 + 1))


@given(seed=st.integers(0, 10**6), tokens=st.integers(1, 6), others=st.integers(1, 6), scale=st.floats(0.1, 30))
def test_kernel_decomposition_stays_within_our_bound(seed, tokens, others, scale):
    one, two = sequence(seed, tokens), sequence(seed + 1, others)
    parts = kernel_decomposition(errors(*one), scale * one[1], errors(*two), two[1])
    torch.testing.assert_close(parts.mean_field + parts.remainder, parts.kernel)
    assert abs(parts.remainder) <= parts.bound * (1 + 1e-9) + 1e-12


def test_loss_after_head_step_agrees_with_taking_the_step():
    head, hidden, targets = sequence(1, 4)
    _, other_hidden, other_targets = sequence(2, 3)
    moved = head - 0.3 * head_gradient(head, hidden, targets)
    expected = torch.nn.functional.cross_entropy(other_hidden @ moved.T, other_targets)
    logits = other_hidden @ head.T
    found = loss_after_head_step(logits, other_targets, other_hidden, errors(head, hidden, targets), hidden, 0.3)
    torch.testing.assert_close(found, expected)
