"""Gradient-activation vectors where p_y nears 0 or 1, where values are not finite, and at the smallest sizes."""

import math

import pytest
import torch
from torch import Tensor

from gar.core import gradient_activation_means
from gar.core import head as head_module
from tests.core.conftest import Case, exact_gradients, make_case, unit_vectors

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
