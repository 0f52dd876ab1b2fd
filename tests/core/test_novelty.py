"""G2RL's novelty: by hand, against its definition through autograd and loops, and where it is undefined."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import gradient_activation_means, novelty_rewards, novelty_scores
from tests.core.conftest import columns, f64, flags, make_case, one_group, unit_vectors


def test_novelty_scores_by_hand():
    # At 0, 60 and 90 degrees: squared cosines 1/4 (0, 1), 0 (0, 2), 3/4 (1, 2). Sign and other groups do not matter.
    # The last has no signal: 0, and no reference. The third is alone: 1.
    vectors = torch.tensor([[1.0, 0.0], [0.5, 0.75**0.5], [0.6, 0.8], [0.0, -1.0], [0.0, 0.0]])
    found = novelty_scores(vectors, flags("10011"), torch.tensor([4, 4, -1, 4, 4]))
    light = 0.11920292202211755  # weights e and 1/e: against one of each the wrong one weighs 1 / (1 + e^2)
    by_hand = torch.tensor([1 - light / 4, 1 - (0.25 + 0.75) / 2, 1.0, 1 - light * 0.75, 0.0])
    torch.testing.assert_close(found, by_hand, rtol=1e-6, atol=0)
    assert novelty_scores(torch.eye(4), flags("1010"), one_group(4)).eq(1).all()
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    assert novelty_scores(opposite, flags("100"), one_group(3)).tolist() == pytest.approx([0.0] * 3, abs=1e-15)


def test_novelty_rewards_by_hand():
    # nubar 0, 1, 1/4, 1, unscored. The fourth is wrong, most novel and badly formatted. Group 2 has one scored member.
    novelty, penalty = f64(0.1, 0.5, 0.2, 0.5, math.nan, 0.9, math.nan), f64(0, 0, 0, -0.6, 0, 0, 0)
    groups, scored = torch.tensor([7, 7, 7, 7, 7, 2, 2]), flags("1111010")
    found = novelty_rewards(flags("1100110"), novelty, penalty, groups, scored=scored)
    torch.testing.assert_close(found, f64(1.0, 2.0, -1.25, -2.6, 1.0, 1.0, -1.0), rtol=1e-14, atol=0)


def test_novelty_of_gars_raw_gradient_is_that_of_g2rls_feature_through_autograd():
    """phi = -n times GAR's G: the gradient of log p, token by token in float64, against the kernel without autograd."""
    case = make_case(responses=6, seed=5)
    hidden = case.hidden.clone().requires_grad_()
    log_probs = (hidden @ case.weight.T).log_softmax(-1)[torch.arange(len(hidden)), case.target_ids]
    (phi,) = torch.autograd.grad(log_probs.sum(), hidden)
    features = torch.stack([phi[case.response_index == i].mean(0) for i in range(6)])
    means = gradient_activation_means(*case, num_responses=6, signal="gradient")
    torch.testing.assert_close(means.double(), -features, rtol=1e-5, atol=1e-7)

    eligible, groups = flags("110100"), torch.tensor([0, 1, 0, 1, 0, 1])
    vectors = unit_vectors(*case, num_responses=6, signal="gradient")
    found = novelty_scores(vectors, eligible, groups)
    for i in range(6):
        others = {j: math.exp(1 if eligible[j] else -1) for j in range(6) if j != i and groups[j] == groups[i]}
        cosines = {j: torch.cosine_similarity(features[i], features[j], dim=0).item() for j in others}
        nu = 1 - sum(weight / sum(others.values()) * cosines[j] ** 2 for j, weight in others.items())
        assert found[i].item() == pytest.approx(nu, abs=1e-6)  # float32 unit rows


# A response: angle of its vector in the plane, has a vector, eligible, badly formatted, group.
ROWS = st.lists(
    st.tuples(st.floats(0, 6), st.booleans(), st.booleans(), st.booleans(), st.integers(-1, 1)), max_size=14
)


def loop_novelty(rows, i: int, peers: list[int]) -> float:
    others = {j: math.exp(1 if rows[j][2] else -1) for j in peers if j != i}
    overlap = sum(others[j] / sum(others.values()) * math.cos(rows[i][0] - rows[j][0]) ** 2 for j in others)
    return max(0.0, 1.0 - overlap)


@given(rows=ROWS)
def test_novelty_rewards_agree_with_a_loop(rows):
    angle, present, eligible, bad, groups = columns(rows, torch.float64, *[torch.bool] * 3, torch.long)
    vectors = torch.stack([angle.cos(), angle.sin()], -1) * present[:, None]
    novelty = novelty_scores(vectors, eligible, groups)
    found = novelty_rewards(eligible, novelty, bad.double() * -0.6, groups, scored=(vectors != 0).any(-1))
    for i, (_, present, right, bad, group) in enumerate(rows):
        peers = [k for k, row in enumerate(rows) if row[1] and row[4] == group]
        nus = {k: loop_novelty(rows, k, peers) for k in peers}
        spread = max(nus.values()) - min(nus.values()) if present else 0.0
        if 0.5e-6 < spread <= 2e-6:
            continue  # on the edge of the tolerance
        nubar = (nus[i] - min(nus.values())) / spread if spread > 2e-6 else 0.0
        expected = (1 + nubar if right else -1 - nubar) + (-0.6 if bad else 0.0)
        # float32 novelties are 6e-8 off; min-max divides that by a spread of at least 2e-6
        assert found[i].item() == pytest.approx(expected, abs=1e-6 / max(spread, 2e-6) + 1e-6)


def test_novelty_of_copies_is_not_blown_up():
    """Eight copies in float32, as different batch positions leave them: scaled without tolerance, 0 to 1."""
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, 512, generator=generator)
    copies = row / row.norm() * (1 + 1e-7 * torch.randn(8, 1, generator=generator))
    novelty = novelty_scores(copies, flags("11110000"), one_group(8))
    assert novelty.unique().numel() > 1
    assert (novelty >= 0).all()
    assert novelty_rewards(flags("1" * 8), novelty, torch.zeros(8), one_group(8)).eq(1).all()
