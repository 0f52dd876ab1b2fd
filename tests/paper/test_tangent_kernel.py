"""The output layer's kernel against its definition: gradients by the head as whole [vocab, hidden] matrices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import gradient_activation_means, unit_rows
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


def test_alignment_1_does_not_bound_the_kernel_from_below():
    """Theorem 1 of GAR fails: with alignment 1 and a kernel below 0 no c_1 > 0 gives c_1 cos(v, v') <= kernel."""
    head = torch.tensor([[1, 0], [-1, 0], [0, 1]], dtype=torch.float64)
    vectors, gradients, parts = [], [], []
    for x, token in ((1.0, 1), (-1.0, 0)):  # mirror images in the first dimension
        hidden, target = torch.tensor([[x, -3.0]], dtype=torch.float64, requires_grad=True), torch.tensor([token])
        (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(hidden @ head.T, target), hidden)
        vectors.append((slope * hidden.detach()).flatten())
        gradients.append(head_gradient(head, hidden.detach(), target).flatten())
        parts += [torch.softmax(hidden @ head.T, -1) - torch.eye(3)[target], hidden]
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(*vectors, dim=0).item() == pytest.approx(1, abs=1e-15)
    assert cosine(*gradients, dim=0).item() == pytest.approx(-0.80, abs=0.005)
    torch.testing.assert_close(output_layer_kernel(*parts), gradients[0] @ gradients[1])
    means = gradient_activation_means(
        torch.cat(parts[1::2]).detach(), head, torch.tensor([1, 0]), torch.tensor([0, 1]), num_responses=2
    )
    torch.testing.assert_close(unit_rows(means), torch.nn.functional.normalize(torch.stack(vectors)).float())
    after = head - 0.1 * gradients[0].view_as(head)  # a step on the first makes the second less likely
    losses = [torch.nn.functional.cross_entropy(parts[3] @ w.T, torch.tensor([0])) for w in (head, after)]
    assert losses[1] > losses[0]


def test_loss_after_head_step_agrees_with_taking_the_step():
    head, hidden, targets = sequence(1, 4)
    _, other_hidden, other_targets = sequence(2, 3)
    moved = head - 0.3 * head_gradient(head, hidden, targets)
    expected = torch.nn.functional.cross_entropy(other_hidden @ moved.T, other_targets)
    logits = other_hidden @ head.T
    found = loss_after_head_step(logits, other_targets, other_hidden, errors(head, hidden, targets), hidden, 0.3)
    torch.testing.assert_close(found, expected)
