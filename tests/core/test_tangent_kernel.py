"""The output layer's kernel against its definition: gradients by the head as whole [vocab, hidden] matrices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core.tangent_kernel import kernel_decomposition, loss_after_head_step, output_layer_kernel

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


def test_output_layer_kernel_by_hand():
    one = torch.tensor([[0.5, -0.5]]), torch.tensor([[2.0]])
    two = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([[3.0], [1.0]])
    assert output_layer_kernel(*one, *two).item() == pytest.approx((0.5 * 6 - 0.5 * 2) / 2)


@pytest.mark.parametrize(("tokens", "others"), [(1, 1), (4, 2), (3, 7)])
def test_output_layer_kernel_agrees_with_autograd(tokens, others):
    one, two = sequence(1, tokens), sequence(2, others)
    expected = (head_gradient(*one) * head_gradient(*two)).sum()
    found = output_layer_kernel(errors(*one), one[1], errors(*two), two[1])
    torch.testing.assert_close(found, expected)


def test_output_layer_kernel_needs_tokens():
    none = torch.zeros(0, VOCAB), torch.zeros(0, WIDTH)
    with pytest.raises(ValueError, match="both sequences need a token, got 0 and 1"):
        output_layer_kernel(*none, torch.zeros(1, VOCAB), torch.zeros(1, WIDTH))


def test_kernel_decomposition_of_single_tokens_has_no_remainder():
    one, two = sequence(1, 1), sequence(2, 1)
    parts = kernel_decomposition(errors(*one), one[1], errors(*two), two[1])
    torch.testing.assert_close(parts.mean_field, parts.kernel)
    assert parts.bound.item() == pytest.approx(0)


@given(seed=st.integers(0, 10**6), tokens=st.integers(1, 6), others=st.integers(1, 6), scale=st.floats(0.1, 30))
def test_kernel_decomposition_stays_within_our_bound(seed, tokens, others, scale):
    one, two = sequence(seed, tokens), sequence(seed + 1, others)
    parts = kernel_decomposition(errors(*one), scale * one[1], errors(*two), two[1])
    torch.testing.assert_close(parts.mean_field + parts.remainder, parts.kernel)
    assert abs(parts.remainder) <= parts.bound * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("c", [2.0, 4.0, 10.0])
def test_kernel_decomposition_breaks_the_printed_bound_by_a_factor_of_c(c):
    d, h = torch.tensor([[-0.5, 0.5], [0.5, -0.5]]), torch.tensor([[c], [-c]])
    parts = kernel_decomposition(d, h, d[:1], h[:1])
    assert parts.mean_field.item() == 0
    assert parts.remainder.item() == pytest.approx(c**2 / 2)
    assert parts.printed_bound.item() == pytest.approx(c / 2)


def test_loss_after_head_step_agrees_with_taking_the_step():
    head, hidden, targets = sequence(1, 4)
    _, other_hidden, other_targets = sequence(2, 3)
    moved = head - 0.3 * head_gradient(head, hidden, targets)
    expected = torch.nn.functional.cross_entropy(other_hidden @ moved.T, other_targets)
    logits = other_hidden @ head.T
    found = loss_after_head_step(logits, other_targets, other_hidden, errors(head, hidden, targets), hidden, 0.3)
    torch.testing.assert_close(found, expected)


def test_loss_after_head_step_falls_by_the_kernel_to_first_order():
    one, two = sequence(1, 4), sequence(2, 3)
    step = 1e-5
    before, after = (
        loss_after_head_step(two[1] @ two[0].T, two[2], two[1], errors(*one), one[1], eta) for eta in (0.0, step)
    )
    kernel = output_layer_kernel(errors(*one), one[1], errors(*two), two[1])
    assert ((before - after) / step).item() == pytest.approx(kernel.item(), rel=1e-3)
