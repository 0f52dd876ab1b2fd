"""The theory of the paper on the embedded model, and in float64 by hand."""

import numpy as np
import pytest
import torch

from paper.analyses import gradient_space as plane
from paper.analyses.head_gradients import separating_threshold
from paper.analyses.propositions import ScoredGroups, reward_propositions
from paper.analyses.theory import TheoryCheck, check_theory, main, mirrored_pair, two_word_counterexample

pytestmark = pytest.mark.paper


@pytest.fixture(scope="module")
def check(embedded) -> TheoryCheck:
    return check_theory(embedded, num_problems=3, num_samples=4)


def test_check_theory_on_the_embedded_model(check):
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


def test_theory_and_gradient_space_run_by_their_commands(tmp_path, capsys):
    main(["embedded", "--problems", "2", "--samples", "4", "--out", str(tmp_path)])
    assert "false for every constant: counterexample" in (tmp_path / "theory.md").read_text()
    plane.main(["embedded", "--samples", "4", "--out", str(tmp_path)])
    assert (tmp_path / "gradient-space.svg").exists()
