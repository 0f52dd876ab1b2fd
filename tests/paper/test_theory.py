"""The theory of the paper on the embedded model and by hand. The output layer's kernel against autograd in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paper.analyses import gradient_space as plane
from paper.analyses.head_gradients import separating_threshold
from paper.analyses.propositions import ScoredGroups, reward_propositions
from paper.analyses.tangent_kernel import kernel_decomposition, loss_after_head_step, output_layer_kernel
from paper.analyses.theory import check_theory, main, mirrored_pair, two_word_counterexample

pytestmark = pytest.mark.paper


def test_check_theory_on_the_embedded_model(embedded):
    check = check_theory(embedded, num_problems=3, num_samples=4)
    statements = {p.name: p for p in check.propositions}
    for name in ("Proposition 1", "Corollary 1", "Theorem 3", "Proposition 2", "Proposition 3"):
        assert statements[name].in_general.startswith("true: "), name
        assert "holds for all" in statements[name].result, name
        assert "fails" not in statements[name].result, name
    data = {name: check.data[name].to_numpy() for name in check.data.column_names}
    for name in ("printed_bound", "printed_bound_of_largest", "proven_bound"):
        assert (np.abs(data["remainder"]) <= data[name] * (1 + 1e-9)).all()
    assert (np.abs(data["alignment"]) <= data["orthogonality_bound"]).all()
    assert (np.abs(data["normalized_kernel"]) <= 1 + 1e-9).all()
    assert (np.sign(data["anchor_loss_decrease"]) == np.sign(data["kernel"])).mean() > 0.9  # first order
    assert all(bool(p.counterexample) == p.in_general.startswith("false") for p in check.propositions)


def test_counterexamples_are_those_of_the_documentation():
    parts = two_word_counterexample(4.0)
    assert (parts.remainder.item(), parts.printed_bound.item()) == pytest.approx((8.0, 2.0))
    assert mirrored_pair() == pytest.approx((1.0, -0.7996), abs=5e-5)


def test_separating_threshold_by_hand():
    # Relative sizes (1, 1/2, 0) and (1/4, 1, 1/5): the smaller of each dimension 1/4, 1/2, 0.
    assert separating_threshold(torch.tensor([[-2.0, 1.0, 0.0], [1.25, 5.0, 1.0]])) == 0.5
    assert separating_threshold(torch.tensor([[0.0, 0.0], [1.0, 1.0]])) == 0


def test_reward_propositions_by_hand():
    scored = ScoredGroups(
        eligible=torch.tensor([True, True, False, True, True]),
        alignment=torch.tensor([0.6, 0.2, 0.9, 0.5, 0.1], dtype=torch.float64),
        group_index=torch.tensor([0, 0, 0, 1, 1]),
    )
    statements = {p.name: p for p in reward_propositions(scored)}
    assert {name: p.result for name, p in statements.items()} == {
        "Theorem 3": "(i) holds for all 4 responses inside; (ii) holds for all 1 mixed groups",
        "Theorem 3, for right answers": "a right answer in bad format gets -0.6, a wrong one in good format 0.0",
        "Theorem 3 (i), carried over to advantages": "fails for 2 of 4 correct responses, each group normalized alone",
        "Proposition 2": "holds for all 2 groups",
        "Proposition 2, its proof": "fails for 2 of 2 groups",
        "Proposition 3": "holds for all 2 groups, at most 0e+00",
        "Appendix G.4": "fails for 2 of 2 groups: mean reward 1.0500, 1 without the bonus",
        "Proposition 4, its reason": "fails for 1 of 1 responses below the mean",
    }
    assert "0.0025 against 0.0100" in statements["Proposition 2, its proof"].counterexample


@pytest.mark.slow
def test_theory_and_gradient_space_run_by_their_commands(tmp_path, capsys):
    main(["embedded", "--problems", "2", "--samples", "4", "--out", str(tmp_path)])
    assert "false for every constant: counterexample" in (tmp_path / "theory.md").read_text()
    plane.main(["embedded", "--samples", "4", "--out", str(tmp_path)])
    assert (tmp_path / "gradient-space.svg").exists()


# The kernel of the output layer, against gradients by the head as whole [vocab, hidden] matrices.
VOCAB, WIDTH = 5, 3


def sequence(seed: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Head, hidden states and tokens, float64. All sequences have the same head."""
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
