"""Similarity of a response and an anchor, from the vectors of their tokens.

For the responses of a group and the anchor of their problem: the cosine of mean vectors (the paper's form, with token
vectors as they are or scaled to unit length), a sum of two cosines, and a kernel of gradients and hidden states.
`token_match` compares token by token. Only one group's token vectors exist at a time, and products of tokens with
tokens stay within a memory limit.
"""

from typing import NamedTuple, get_args

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from gar.core.alignment import alignment_scores
from gar.core.arguments import (
    DEFAULT_MEMORY_BYTES,
    Budget,
    Head,
    ScoredTokens,
    Signal,
    Weighting,
    check_arguments,
    check_choice,
    check_range,
)
from gar.core.closed_form import unit_tokens, weighted_tokens
from gar.core.gradients import NORM_FLOOR, head_contributions, unit_rows
from gar.core.head import exact_products, make_plan

_CHUNK_TOKENS = 1024
"""Token vectors that exist in float64 at one time."""
BYTES_PER_PAIR = 40
"""Most memory for one response token and one anchor token: float32 products, their masks and derivatives, and int64
indices."""


class ResponseTokens(NamedTuple):
    """Token vectors of the responses to one problem, in any order.

    Attributes:
        vectors: [tokens, hidden].
        response_index: Which response a token belongs to, in [0, num_responses), [tokens].
        num_responses: Rows of the results.
    """

    vectors: Tensor
    response_index: Tensor
    num_responses: int


@torch.no_grad()
def token_vectors(tokens: ScoredTokens, head: Head, signal: Signal, budget: Budget) -> Tensor:
    """u_t of every token, [tokens, hidden], float32 (float64 for float64 input).

    The closed form never subtracts p from 1, so a certain token's vector is short but keeps all its digits.

    Args:
        tokens: The scored tokens of one group.
        head: The head.
        signal: Which u_t; its `keep_fraction` is not read.
        budget: Memory and precision.

    Raises:
        ValueError: As `gar.core.gradients.gradient_activation_vectors`.
    """
    check_arguments(tokens, head, signal)
    plan = make_plan(tokens.hidden, head, budget)
    vectors = torch.empty_like(tokens.hidden, dtype=plan.dtype)
    for rows, u in head_contributions(tokens, head, signal, plan):
        vectors[rows] = u
    return vectors


def dimension_sizes(vectors: Float[Tensor, "tokens hidden"]) -> Float32[Tensor, " hidden"]:
    """Root mean square of each dimension over the tokens, by which vectors may be divided before they are compared.

    A few dimensions of a language model's hidden states are far larger than the others and decide every cosine.

    Returns:
        float32, summed in float64; zeros where there is no token.

    Example:
        >>> dimension_sizes(torch.tensor([[3.0, 0.0], [-3.0, 2.0]]))
        tensor([3.0000, 1.4142])
    """
    squares = vectors.double().square().sum(0) / max(1, len(vectors))
    return squares.sqrt().float()


# ------------------------------------------------------------------------------------------------------ mean vectors


def mean_similarity(
    responses: ResponseTokens, anchor: Float[Tensor, "anchor_tokens hidden"], *, weighting: Weighting = "norm"
) -> Float32[Tensor, " responses"]:
    """Cosine of the mean of a response's token vectors and the mean of the anchor's.

    Args:
        responses: Token vectors of a group.
        anchor: Token vectors of the anchor.
        weighting: "norm" takes u_t as they are [GAR paper, eqs. 2-5]; "unit" scales each to unit length first, so that
            tokens that the policy is certain of count as much as the others [ours].

    Returns:
        float32 in [-1, 1]; 0 where a mean has no usable direction (norm under 1e-8) or there is no token.

    Raises:
        ValueError: Shapes disagree, an index is out of range, or the weighting is unknown.

    Example:
        >>> group = ResponseTokens(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), 1)
        >>> anchor = torch.tensor([[0.0, 2.0]])
        >>> mean_similarity(group, anchor), mean_similarity(group, anchor, weighting="unit")
        (tensor([0.2425]), tensor([0.7071]))
    """
    check_choice("weighting", weighting, get_args(Weighting))
    check_tokens(responses, anchor)
    means = unit_rows(token_means(responses, weighting))
    direction = _direction(anchor, weighting)
    return alignment_scores(means, direction.expand_as(means))


def _direction(anchor: Tensor, weighting: Weighting) -> Tensor:
    alone = ResponseTokens(anchor, torch.zeros(len(anchor), dtype=torch.long, device=anchor.device), 1)
    return unit_rows(token_means(alone, weighting))


def token_means(responses: ResponseTokens, weighting: Weighting = "norm") -> Tensor:
    """Mean of each response's weighted token vectors, float64 [responses, hidden]; zero where there is no token."""
    vectors, index, num_responses = responses
    sums = torch.zeros(num_responses, vectors.shape[1], dtype=torch.float64, device=vectors.device)
    for rows in torch.arange(len(vectors), device=vectors.device).split(_CHUNK_TOKENS):
        sums.index_add_(0, index[rows], weighted_tokens(vectors[rows], weighting).double())
    return sums / token_counts(responses)


def token_counts(responses: ResponseTokens) -> Tensor:
    """Tokens of each response, at least 1, [responses, 1]."""
    return torch.bincount(responses.response_index, minlength=responses.num_responses).clamp(min=1)[:, None]


class CosineSum(NamedTuple):
    """Result of `cosine_sum`.

    Attributes:
        similarity: float32 [responses], in [-1, 1]; NaN where there is none.
        shares: float32 [tokens]: each token's share in the similarity of its response, 0 where there is none.
    """

    similarity: Tensor
    shares: Tensor


def cosine_sum(
    gradients: ResponseTokens,
    hidden: Float[Tensor, "tokens hidden"],
    anchor_gradients: Float[Tensor, "anchor_tokens hidden"],
    anchor_hidden: Float[Tensor, "anchor_tokens hidden"],
) -> CosineSum:
    """Half the sum of two cosines: of mean gradients g_t, and of mean g_t * h_t at unit length.

    A few uncertain tokens, such as the choice of a method, dominate the mean of unscaled gradients. In the other mean
    every token has the same weight, so that one wrong step shows.

    Args:
        gradients: g_t = W^T(p - e) of a group's tokens.
        hidden: Hidden states h_t of the same tokens.
        anchor_gradients: Gradients of the anchor's tokens.
        anchor_hidden: Hidden states of the same tokens.

    Returns:
        NaN where one of the means has no usable direction (norm under 1e-8, or not finite). A token's share is half the
        sum of its shares in both cosines, so shares add up to the similarity.

    Raises:
        ValueError: Shapes disagree, or an index is out of range.

    References:
        Ours; the cosines are those of GAR, arXiv 2609.03342, eq. 5, for its ablation and for scaled tokens.

    Example:
        >>> group = ResponseTokens(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), 1)
        >>> h, g_anchor, h_anchor = torch.ones(2, 2), torch.tensor([[0.0, 2.0]]), torch.ones(1, 2)
        >>> cosine_sum(group, h, g_anchor, h_anchor)  # (0.2425 + 0.7071) / 2
        CosineSum(similarity=tensor([0.4748]), shares=tensor([0.0000, 0.4748]))
    """
    check_tokens(gradients, anchor_gradients)
    _check_states(gradients.vectors, hidden, anchor_gradients, anchor_hidden)
    products = gradients._replace(vectors=gradients.vectors * hidden)
    direct = _cosine_shares(gradients, anchor_gradients, "norm")
    shares = (direct + _cosine_shares(products, anchor_gradients * anchor_hidden, "unit")) / 2
    sums = torch.zeros(gradients.num_responses, dtype=torch.float64, device=hidden.device)
    sums.index_add_(0, gradients.response_index, shares)
    counts = torch.bincount(gradients.response_index, minlength=gradients.num_responses)
    return CosineSum(sums.where(counts > 0, torch.nan).clamp(-1, 1).float(), shares.nan_to_num(nan=0.0).float())


def _cosine_shares(responses: ResponseTokens, anchor: Tensor, weighting: Weighting) -> Tensor:
    """Each token's share in the cosine of two means, float64 [tokens]; NaN where a mean has no usable direction."""
    vectors, index, _ = responses
    direction = _direction(anchor, weighting).double()[0]
    norms = token_means(responses, weighting).norm(dim=-1)
    usable = norms.isfinite() & (norms >= NORM_FLOOR) & (direction != 0).any()
    sizes = torch.where(usable, norms * token_counts(responses)[:, 0], torch.nan)
    return weighted_tokens(vectors, weighting).double() @ direction / sizes[index]


# ------------------------------------------------------------------------------------------------------------ kernel


def kernel_similarity(
    gradients: ResponseTokens,
    hidden: Float[Tensor, "tokens hidden"],
    anchor_gradients: Float[Tensor, "anchor_tokens hidden"],
    anchor_hidden: Float[Tensor, "anchor_tokens hidden"],
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Float32[Tensor, " responses"]:
    """Normalised kernel of a response and an anchor: `K(i, a) / sqrt(K(i, i) K(a, a))`.

    `K(i, a) = mean over t, s of (g_t . g_s)(h_t . h_s)` with g_t = W^T(p - e) and h_t each scaled to unit length: the
    cosine of the mean outer products of gradient and hidden state, [hidden, hidden] matrices that are never formed. It
    has no exact shares of tokens, since K(i, i) is not a sum over them.

    Args:
        gradients: g_t of a group's tokens.
        hidden: h_t of the same tokens.
        anchor_gradients: Gradients of the anchor's tokens.
        anchor_hidden: Hidden states of the same tokens.
        memory_bytes: Temporary-memory limit for products of tokens with tokens.

    Returns:
        float32 in [-1, 1]; NaN where a kernel has no usable size (under 1e-16), or a token is missing or not finite.

    Raises:
        ValueError: Shapes disagree, an index is out of range, or the limit is too low for one token.
    """
    check_tokens(gradients, anchor_gradients)
    _check_states(gradients.vectors, hidden, anchor_gradients, anchor_hidden)
    index, counts = gradients.response_index, token_counts(gradients)[:, 0]
    tokens = unit_tokens(gradients.vectors), unit_tokens(hidden)
    others = unit_tokens(anchor_gradients), unit_tokens(anchor_hidden)
    crossed = torch.zeros(gradients.num_responses, dtype=torch.float64, device=hidden.device)
    crossed.index_add_(0, index, _kernel_rows(tokens, others, memory_bytes))
    self_kernels = torch.zeros_like(crossed)
    for i in range(gradients.num_responses):
        members = tokens[0][index == i], tokens[1][index == i]
        self_kernels[i] = _kernel_rows(members, members, memory_bytes).sum()
    # Sums over pairs of tokens: the numbers of tokens cancel, but for the floor.
    sizes, anchor_size = self_kernels.sqrt(), _kernel_rows(others, others, memory_bytes).sum().sqrt()
    usable = (sizes >= NORM_FLOOR * counts) & (anchor_size >= NORM_FLOOR * max(1, len(anchor_hidden)))
    return torch.where(usable, crossed / (sizes * anchor_size), torch.nan).clamp(-1, 1).float()


def _kernel_rows(tokens: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], memory_bytes: int) -> Tensor:
    """Sum over `others` of (g_t . g_s)(h_t . h_s) for each of `tokens`, float64 [tokens]."""
    step = rows_at_once(len(others[0]), memory_bytes)
    with exact_products(tokens[0].device):
        rows = [
            ((g @ others[0].T) * (h @ others[1].T)).sum(-1, dtype=torch.float64)
            for g, h in zip(tokens[0].split(step), tokens[1].split(step), strict=True)
        ]
    return torch.cat(rows)


def rows_at_once(num_columns: int, memory_bytes: int) -> int:
    """Number of tokens whose products with `num_columns` other tokens fit into the memory limit.

    Raises:
        ValueError: Not even one fits.
    """
    needed = BYTES_PER_PAIR * max(1, num_columns)
    if memory_bytes < needed:
        raise ValueError(
            f"memory_bytes must be at least {needed} for one token against {num_columns}, got {memory_bytes}"
        )
    return memory_bytes // needed


def check_tokens(responses: ResponseTokens, anchor: Tensor) -> None:
    """Raise a ValueError for widths or numbers of tokens that disagree, and for indices out of range."""
    vectors, index, num_responses = responses
    if vectors.ndim != 2 or anchor.ndim != 2 or vectors.shape[1] != anchor.shape[1]:
        raise ValueError(
            "token vectors must have shape [tokens, hidden] with one width, got "
            f"{tuple(vectors.shape)} and {tuple(anchor.shape)}. Are they of two models?"
        )
    if index.shape != (len(vectors),):
        raise ValueError(f"response_index must have one entry per token, expected {len(vectors)}, got {len(index)}")
    check_range("response_index", index, num_responses, "Did a padding token keep its -1?")


def _check_states(gradients: Tensor, hidden: Tensor, anchor_gradients: Tensor, anchor_hidden: Tensor) -> None:
    for name, states, vectors in (
        ("hidden", hidden, gradients),
        ("anchor_hidden", anchor_hidden, anchor_gradients),
    ):
        if states.shape != vectors.shape:
            raise ValueError(
                f"{name} must have the shape of its gradients, {tuple(vectors.shape)}, got {tuple(states.shape)}"
            )
