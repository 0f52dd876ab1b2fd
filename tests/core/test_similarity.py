"""Similarities of token vectors against loops in float64, and the gradients that they are made of against autograd."""

import pytest
import torch

from gar.core import gradient_activation_vectors
from gar.core.arguments import Budget, Head, ScoredTokens, Signal
from gar.core.closed_form import unit_tokens
from gar.core.similarity import (
    ResponseTokens,
    cosine_sum,
    dimension_sizes,
    kernel_similarity,
    mean_similarity,
    token_vectors,
)
from gar.core.token_match import ordered_match, token_match
from tests.core.token_groups import INDEX, WIDTH, cosine, group, tokens_of

# --------------------------------------------------------------------------------------------------- token vectors


@pytest.mark.parametrize("kind", ["gradient", "gradient-activation", "hidden"])
@pytest.mark.parametrize("chunk_tokens", [None, 2])
def test_token_vectors_agree_with_autograd(kind, chunk_tokens):
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(7, WIDTH, generator=generator, dtype=torch.float64)
    weight = torch.randn(11, WIDTH, generator=generator, dtype=torch.float64)
    targets = torch.randint(11, (7,), generator=generator)
    leaf = hidden.clone().requires_grad_()
    torch.nn.functional.cross_entropy(leaf @ weight.T, targets, reduction="sum").backward()
    assert leaf.grad is not None
    expected = {"gradient": leaf.grad, "gradient-activation": leaf.grad * hidden, "hidden": hidden}[kind]
    found = token_vectors(
        ScoredTokens(hidden, targets, INDEX, 4), Head(weight), Signal(kind), Budget(chunk_tokens=chunk_tokens)
    )
    torch.testing.assert_close(found, expected)


def test_token_vectors_of_certain_tokens_keep_their_direction():
    # z = (60, 0): 1 - p_0 = e^-60 / (1 + e^-60), where p - e is exactly 0 in float32.
    hidden, weight = torch.tensor([[60.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.5]])
    tokens = ScoredTokens(hidden, torch.tensor([0]), torch.tensor([0]), 1)
    u = token_vectors(tokens, Head(weight), Signal("gradient"), Budget())
    assert u.norm().item() == pytest.approx(8.7565e-27 * 1.25**0.5, rel=1e-4)  # e^-60 |W_1 - W_0|, four digits
    torch.testing.assert_close(unit_tokens(u), torch.tensor([[-1.0, 0.5]]) / 1.25**0.5)


def test_unit_tokens_without_direction_are_zero_and_not_finite_ones_nan():
    vectors = torch.tensor([[1e-31, 0.0], [0.0, 0.0], [-1e-29, 0.0], [torch.nan, 1.0], [torch.inf, 1.0]])
    found = unit_tokens(vectors)
    torch.testing.assert_close(found[:3], torch.tensor([[0.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]))
    assert found[3:].isnan().any(-1).all()


def test_dimension_sizes_by_hand():
    sizes = dimension_sizes(torch.tensor([[3.0, 0.0, 1.0], [-4.0, 0.0, 1.0]]))
    torch.testing.assert_close(sizes, torch.tensor([12.5**0.5, 0.0, 1.0]))
    assert dimension_sizes(torch.zeros(0, 2)).tolist() == [0.0, 0.0]


# ---------------------------------------------------------------------------------------------------- mean vectors


@pytest.mark.parametrize("weighting", ["norm", "unit"])
def test_mean_similarity_agrees_with_loops(weighting):
    responses, anchor = group()

    def mean(vectors: torch.Tensor) -> torch.Tensor:
        return sum(u / (u.norm() if weighting == "unit" else 1) for u in vectors.double()) / len(vectors)

    expected = [cosine(mean(tokens_of(responses, i)), mean(anchor)) for i in range(3)]
    found = mean_similarity(responses, anchor, weighting=weighting)
    torch.testing.assert_close(found, torch.tensor([*expected, 0.0]))


def test_mean_similarity_of_norms_is_the_paper_s_alignment():
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(12, WIDTH, generator=generator)
    weight = torch.randn(11, WIDTH, generator=generator)
    targets = torch.randint(11, (12,), generator=generator)
    index = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2])
    rows = gradient_activation_vectors(hidden, weight, targets, index, num_responses=3)
    u = token_vectors(ScoredTokens(hidden, targets, index, 3), Head(weight), Signal(), Budget())
    found = mean_similarity(ResponseTokens(u[:7], index[:7], 2), u[7:])
    torch.testing.assert_close(found, rows[:2] @ rows[2])


def test_mean_similarity_of_a_certain_token_counts_only_under_unit():
    anchor = torch.tensor([[0.0, 1.0]])
    responses = ResponseTokens(torch.tensor([[1.0, 0.0], [0.0, 1e-20]]), torch.tensor([0, 0]), 1)
    assert mean_similarity(responses, anchor).item() == pytest.approx(1e-20)
    assert mean_similarity(responses, anchor, weighting="unit").item() == pytest.approx(0.5**0.5)


# ----------------------------------------------------------------------------------------------------- sum of cosines


def test_cosine_sum_is_half_of_two_cosines_and_its_shares_add_up():
    (gradients, anchor_gradients), (states, anchor_states) = group(1), group(2)
    products = gradients._replace(vectors=gradients.vectors * states.vectors)
    direct = mean_similarity(gradients, anchor_gradients)
    units = mean_similarity(products, anchor_gradients * anchor_states, weighting="unit")
    similarity, shares = cosine_sum(gradients, states.vectors, anchor_gradients, anchor_states)
    torch.testing.assert_close(similarity[:3], (direct + units)[:3] / 2)
    assert similarity[3].isnan()  # no token
    sums = torch.zeros(4).index_add_(0, gradients.response_index, shares)
    torch.testing.assert_close(sums[:3], similarity[:3])


def test_cosine_sum_has_no_number_where_one_mean_has_no_direction():
    ones = torch.ones(3, 2)
    vectors = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, torch.inf]])  # the first response cancels
    group = ResponseTokens(vectors, torch.tensor([0, 0, 1]), 2)
    similarity, shares = cosine_sum(group, ones, ones[:1], ones[:1])
    assert similarity.isnan().all()
    assert shares.tolist() == [0, 0, 0]
    lone = ResponseTokens(ones[:1], torch.tensor([0]), 1)
    assert cosine_sum(lone, ones[:1], 0 * ones[:1], ones[:1]).similarity.isnan().all()


# ---------------------------------------------------------------------------------------------------------- kernel


@pytest.mark.parametrize("memory_bytes", [2**28, 40 * len(INDEX)])
def test_kernel_similarity_is_the_cosine_of_mean_outer_products(memory_bytes):
    (gradients, anchor_gradients), (states, anchor_states) = group(1), group(2)

    def mean_outer(g: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        pairs = zip(g.double(), h.double(), strict=True)
        return torch.stack([torch.outer(a / a.norm(), b / b.norm()) for a, b in pairs]).mean(0).flatten()

    other = mean_outer(anchor_gradients, anchor_states)
    expected = [cosine(mean_outer(tokens_of(gradients, i), tokens_of(states, i)), other) for i in range(3)]
    found = kernel_similarity(gradients, states.vectors, anchor_gradients, anchor_states, memory_bytes=memory_bytes)
    torch.testing.assert_close(found, torch.tensor([*expected, torch.nan]), equal_nan=True)


def test_kernel_similarity_by_hand():
    # K(i, a) = (1 + 0) / 2, K(i, i) = (1 + 0 + 0 + 1) / 4, K(a, a) = 1
    one, states = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    found = kernel_similarity(ResponseTokens(one, torch.tensor([0, 0]), 1), states, one[:1], states[:1])
    assert found.item() == pytest.approx(0.5 / 0.5**0.5)


# -------------------------------------------------------------------------------------------- what all of them share


def similarities(responses: ResponseTokens, anchor: torch.Tensor) -> dict[str, torch.Tensor]:
    match = token_match(responses, anchor)
    return {
        "norm": mean_similarity(responses, anchor),
        "unit": mean_similarity(responses, anchor, weighting="unit"),
        "recall": match.recall,
        "precision": match.precision,
        "ordered": ordered_match(responses, anchor).recall,
        "sum": cosine_sum(responses, responses.vectors, anchor, anchor).similarity,
        "kernel": kernel_similarity(responses, responses.vectors, anchor, anchor),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_similarity_with_itself_is_one(dtype):
    responses, _ = group(4, dtype)
    itself = responses.vectors[INDEX == 1]
    for name, values in similarities(responses, itself).items():
        # bfloat16 vectors are taken as they are: their directions have three digits
        tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-6
        assert values[1].item() == pytest.approx(1, abs=tolerance), name
        assert values.dtype == torch.float32


def test_similarity_does_not_depend_on_the_rest_of_the_group():
    responses, anchor = group(6)
    mask = INDEX == 1
    alone = ResponseTokens(responses.vectors[mask], torch.zeros(4, dtype=torch.long), 1)
    together = similarities(responses, anchor)
    for name, values in similarities(alone, anchor).items():
        torch.testing.assert_close(values[0], together[name][1], msg=name)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_token_that_is_not_finite_stays_with_its_response(value):
    responses, anchor = group(6)
    broken = responses.vectors.clone()
    broken[0, 3] = value  # of response 1
    clean = similarities(responses, anchor)
    for name, values in similarities(responses._replace(vectors=broken), anchor).items():
        if name in ("norm", "unit"):
            assert values[1] == 0, name  # no usable direction
        else:
            assert values[1].isnan(), name
        torch.testing.assert_close(values[[0, 2]], clean[name][[0, 2]], msg=name)
    broken = anchor.clone()
    broken[2, 0] = value
    for name in ("recall", "precision", "ordered", "sum", "kernel"):
        assert similarities(responses, broken)[name][:3].isnan().all(), name


def test_similarities_refuse_what_does_not_fit(unchecked):
    responses, anchor = group()
    with pytest.raises(ValueError, match=r"one width, got \(7, 7\) and \(5, 6\)"):
        token_match(responses, anchor[:, :-1])
    with pytest.raises(ValueError, match=r"response_index must lie in \[0, 2\), got 0 to 2"):
        mean_similarity(responses._replace(num_responses=2), anchor)
    with pytest.raises(ValueError, match="one entry per token, expected 7, got 6"):
        mean_similarity(responses._replace(response_index=INDEX[:-1]), anchor)
    with pytest.raises(ValueError, match="weighting must be one of norm, unit, got 'square'"):
        mean_similarity(responses, anchor, weighting="square")
    with pytest.raises(ValueError, match="memory_bytes must be at least 280 for one token against 7, got 279"):
        token_match(responses, anchor, memory_bytes=279)
    with pytest.raises(ValueError, match=r"anchor_hidden must have the shape of its gradients, \(5, 7\), got \(4, 7\)"):
        kernel_similarity(responses, responses.vectors, anchor, anchor[:-1])
