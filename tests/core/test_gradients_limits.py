"""Gradient-activation vectors where p_y nears 0 or 1, where values are not finite, and at the smallest sizes."""

import math

import pytest
import torch
from torch import Tensor

from gar.core import gradient_activation_means
from gar.core import head as head_module
from gar.core import vectors as module
from tests.core.conftest import unit_vectors

ONE_TOKEN = {"target_ids": torch.tensor([0]), "response_index": torch.tensor([0]), "num_responses": 1}


def target_excluded_gradient(h: Tensor, weight: Tensor, target: int) -> Tensor:
    """W^T (p - e_y) in float64 without forming p_y, which rounds to 1: a test of confident tokens needs it."""
    logits = weight.double() @ h.double()
    others = torch.arange(len(weight)) != target
    log_odds = torch.logsumexp(logits[others], 0) - logits[target]
    q = logits[others].softmax(0)
    return torch.sigmoid(log_odds) * (q @ weight[others].double() - weight[target].double())


def two_sided_weight(gap: float) -> Tensor:
    """With h = (1, 0.5, -2): z_0 = gap, and 49 logits within [-1, 1] of 0."""
    generator = torch.Generator().manual_seed(11)
    weight = torch.rand(50, 3, generator=generator) * 0.5 - 0.25
    weight[0] = torch.tensor([gap, 0.0, 0.0])
    return weight


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("gap", [11.5, 18.4, 27.6, 40.0, 60.0])
def test_gradient_activation_means_of_confident_tokens_keep_every_digit(monkeypatch, gap, tiled):
    """1 - p_y is about 49 exp(-gap): 5e-4, 5e-7, 5e-11, 2e-16, 4e-25. One minus a float32 p_y would be 0 from 18 on."""
    h, weight = torch.tensor([[1.0, 0.5, -2.0]]), two_sided_weight(gap)
    if tiled:
        monkeypatch.setattr(head_module, "_CPU_TILE", 7)
        weight = weight.bfloat16()
    truth = target_excluded_gradient(h[0], weight, 0)
    found = gradient_activation_means(h, weight, **ONE_TOKEN, signal="gradient")[0]
    # exp turns a logit's rounding into a relative error: gap * 6e-8, so 4e-6 for 60, and as much for the reference.
    assert (found - truth).norm() <= 1e-5 * truth.norm()
    assert found[0] < 0  # and it still points away from the target's row


@pytest.mark.parametrize("gap", [66.0, 80.0, 500.0])
def test_gradient_activation_means_of_certain_tokens_are_zero(gap):
    found = gradient_activation_means(torch.ones(1, 3), two_sided_weight(gap), **ONE_TOKEN)
    assert found.tolist() == [[0.0, 0.0, 0.0]]  # not the denormals of exp(-gap - 20), and not 0 / 0


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize(
    ("gap", "falls_back"),
    # The reference is z_y + 20, and float32's exp overflows at 88.7: log p_y = -gap - ln(other terms) down to -108.
    [(30.0, False), (79.0, False), (95.0, False), (112.0, True), (150.0, True), (1000.0, True)],
)
def test_gradient_activation_means_of_very_unlikely_targets(monkeypatch, gap, falls_back, tiled):
    calls = []
    largest_logits = module.largest_logits
    monkeypatch.setattr(module, "largest_logits", lambda h, *rest: calls.append(len(h)) or largest_logits(h, *rest))
    h, weight = torch.tensor([[1.0, 0.5, -2.0]]), two_sided_weight(-gap)
    if tiled:
        monkeypatch.setattr(head_module, "_CPU_TILE", 7)
        weight = weight.bfloat16()
    truth = target_excluded_gradient(h[0], weight, 0)  # p_y is 0 to every digit: mean of the others less W_y
    found = gradient_activation_means(h, weight, **ONE_TOKEN, signal="gradient")[0]
    assert (found - truth).norm() <= 1e-6 * truth.norm()  # q_v: rounding of logits below 1, and 50 terms
    assert calls == ([1] if falls_back else [])


@pytest.mark.parametrize("weight_scale", [1.0, 1e4])
def test_gradient_activation_means_fall_back_when_only_the_product_with_w_overflows(weight_scale):
    """log p_y about -106: sum exp(z - ref) = exp(86) fits in float32, times a row of 1e4 it does not."""
    h = torch.tensor([[1.0, 0.0]])
    weight = torch.tensor([[-105.0, 0.0], [1.0, weight_scale], [1.0, weight_scale]])
    truth = target_excluded_gradient(h[0], weight, 0)
    found = gradient_activation_means(h, weight, **ONE_TOKEN, signal="gradient")[0]
    torch.testing.assert_close(found, truth.float(), rtol=1e-6, atol=0)


def test_gradient_activation_means_fall_back_for_the_tokens_that_need_it_alone(make_case, autograd_means):
    case = make_case(tokens=30, vocab=20)
    case.hidden[::3] *= 300.0  # logits of several hundred: most targets are out of reach
    truth = autograd_means(case, num_responses=4)
    found = gradient_activation_means(*(t.float() if t.is_floating_point() else t for t in case), num_responses=4)
    # logits of 1000 carry 6e-5 in float32, and that becomes the relative error of the terms that matter
    assert (found - truth).norm() <= 1e-4 * truth.norm()


def test_gradient_activation_vectors_without_tokens_are_zero_rows():
    none = torch.zeros(0, dtype=torch.long)
    found = unit_vectors(torch.zeros(0, 3), torch.ones(5, 3), none, none, num_responses=2)
    assert found.tolist() == [[0.0] * 3] * 2
    ranked = unit_vectors(torch.zeros(0, 3), torch.ones(5, 3), none, none, num_responses=2, keep_fraction=0.5)
    assert ranked.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("keep_fraction", [1.0, 0.6])
def test_gradient_activation_vectors_of_a_response_without_tokens_is_a_zero_row(make_case, keep_fraction):
    case = make_case(responses=2)
    spread = case._replace(response_index=case.response_index * 2)  # 0 and 2: response 1 has no token
    dense = unit_vectors(*case, num_responses=2, keep_fraction=keep_fraction)
    found = unit_vectors(*spread, num_responses=4, keep_fraction=keep_fraction)
    assert found[1].eq(0).all()
    assert found[3].eq(0).all()
    assert torch.equal(found[[0, 2]], dense)


def test_gradient_activation_vectors_of_a_vocabulary_of_one_is_zero():
    found = unit_vectors(torch.ones(1, 3), torch.ones(1, 3), **ONE_TOKEN)
    assert found.tolist() == [[0.0] * 3]  # p_y is 1 whatever h: no gradient


@pytest.mark.parametrize("keep_fraction", [1.0, 0.5])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_gradient_activation_means_not_finite_stay_with_their_response(make_case, value, keep_fraction):
    case, options = make_case(tokens=40), {"keep_fraction": keep_fraction}
    clean = gradient_activation_means(*case, num_responses=4, **options)
    broken = case.hidden.clone()
    broken[(case.response_index == 2).nonzero()[1], 5] = value
    means = gradient_activation_means(broken, *case[1:], num_responses=4, **options)
    assert means.isfinite().all(-1).tolist() == [True, True, False, True]
    others = [0, 1, 3]
    torch.testing.assert_close(means[others], clean[others], rtol=1e-6, atol=1e-9)
    vectors = unit_vectors(broken, *case[1:], num_responses=4, **options)
    assert vectors[2].eq(0).all()
    torch.testing.assert_close(vectors[others].norm(dim=-1), torch.ones(3))


def test_gradient_activation_means_with_a_nan_weight_are_never_zero(make_case):
    case = make_case()
    case.weight[3, 1] = math.nan
    assert gradient_activation_means(*case, num_responses=4).isnan().any(-1).all()


def test_gradient_activation_means_ignore_vocabulary_masked_by_a_bias_of_minus_infinity(make_case):
    """Padding rows of an embedding: with or without them the vector is the same."""
    case = make_case()
    bias = torch.zeros(40, dtype=torch.float64)
    bias[37:] = -math.inf
    padded = torch.cat([case.weight, torch.full((3, 8), 9.0, dtype=torch.float64)])
    found = gradient_activation_means(case.hidden, padded, *case[2:], num_responses=4, bias=bias)
    torch.testing.assert_close(found, gradient_activation_means(*case, num_responses=4), rtol=1e-6, atol=1e-9)


def test_gradient_activation_means_tile_a_real_vocabulary():
    """151,936 rows are 74 tiles of 2,048 and one of 384; the last target lies in that one."""
    generator = torch.Generator().manual_seed(2)
    weight = (torch.randn(151_936, 64, generator=generator) * 0.3).bfloat16()
    h = torch.randn(3, 64, generator=generator)
    targets = torch.tensor([0, 2048, 151_935])
    found = gradient_activation_means(h, weight, targets, torch.arange(3), num_responses=3, signal="gradient")
    for row, target in enumerate(targets.tolist()):
        truth = target_excluded_gradient(h[row], weight, target)
        assert (found[row] - truth).norm() <= 1e-5 * truth.norm()  # logits up to 12: 12 * 6e-8, and 150k terms
