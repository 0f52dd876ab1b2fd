"""Similarity of a response and an anchor, token by token: best counterparts in any order, or in the tokens' order."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from gar.core.arguments import DEFAULT_MEMORY_BYTES
from gar.core.closed_form import unit_tokens
from gar.core.head import exact_products
from gar.core.similarity import ResponseTokens, check_tokens, rows_at_once, token_counts


class TokenMatch(NamedTuple):
    """Result of `token_match`.

    Attributes:
        recall: Mean over anchor tokens of the largest cosine with a token of the response, float32 [responses].
        precision: Mean over the response's tokens of the largest cosine with an anchor token, float32 [responses].
        recall_shares: Each token's share in the recall of its response, float32 [tokens].
        precision_shares: Each token's share in the precision of its response, float32 [tokens].
        scored: Whether response and anchor have a token with a direction, [responses]; recall and precision are 0 where
            not.
    """

    recall: Tensor
    precision: Tensor
    recall_shares: Tensor
    precision_shares: Tensor
    scored: Tensor

    @property
    def f_score(self) -> Tensor:
        """The mean of recall and precision, float32 [responses]."""
        return (self.recall + self.precision) / 2


def token_match(
    responses: ResponseTokens,
    anchor: Float[Tensor, "anchor_tokens hidden"],
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> TokenMatch:
    """Each token finds its most similar counterpart: BERTScore on token vectors.

    `R = mean over s of max over t of cos(u_t, u_s)`, t a token of the response and s one of the anchor; for P they
    change roles. A token without direction has cosine 0 with every other. In R each anchor token's best response token,
    the first of equals, has the share `cos / num_anchor_tokens`. A comparison with a token that is not finite gives
    NaN.

    Args:
        responses: Token vectors of a group. Their lengths do not matter.
        anchor: Token vectors of the anchor.
        memory_bytes: Temporary-memory limit for products of tokens with tokens.

    Raises:
        ValueError: Shapes disagree, an index is out of range, or the limit is too low for one anchor token.

    References:
        Ours; BERTScore, arXiv 1904.09675, eq. 1, on vectors of another kind.

    Example:
        >>> group = ResponseTokens(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), 1)
        >>> match = token_match(group, torch.tensor([[0.0, 2.0]]))
        >>> match.recall, match.precision, match.recall_shares
        (tensor([1.]), tensor([0.5000]), tensor([0., 1.]))
    """
    check_tokens(responses, anchor)
    index, num_responses = responses.response_index, responses.num_responses
    units, anchor_units = unit_tokens(responses.vectors), unit_tokens(anchor)
    num_tokens, num_anchor_tokens = len(units), len(anchor_units)
    recall = torch.zeros(num_responses, dtype=torch.float64, device=units.device)
    shares = torch.zeros(num_tokens, dtype=torch.float64, device=units.device)
    nearest = units.new_full((num_tokens,), -1.0)
    order = torch.argsort(index, stable=True)
    rows_of = order.split(torch.bincount(index, minlength=num_responses).tolist())
    parts = anchor_units.split(rows_at_once(num_tokens, memory_bytes)) if num_tokens and num_anchor_tokens else ()
    for part in parts:
        with exact_products(units.device):
            cosines = units @ part.T
        nearest = torch.maximum(nearest, cosines.amax(-1))
        for i, rows in enumerate(rows_of):
            if len(rows):
                best, place = cosines[rows].max(0)  # of equals, the first
                gains = best.double() / num_anchor_tokens
                recall[i] += gains.sum()
                shares.index_add_(0, rows[place], gains)
    scored = _has_direction(units, index, num_responses) & anchor_units.any()
    precision_shares = nearest.double() / token_counts(responses)[index, 0]
    precision = torch.zeros_like(recall).index_add_(0, index, precision_shares)
    return TokenMatch(
        recall=recall.where(scored, 0.0).clamp(-1, 1).float(),
        precision=precision.where(scored, 0.0).clamp(-1, 1).float(),
        recall_shares=shares.float(),
        precision_shares=precision_shares.float(),
        scored=scored,
    )


def _has_direction(units: Tensor, index: Tensor, num_responses: int) -> Tensor:
    """Which responses have a token whose vector is not zero, bool [responses]."""
    return torch.bincount(index[units.any(-1)], minlength=num_responses) > 0


# ----------------------------------------------------------------------------------------------------------- in order


class OrderedMatch(NamedTuple):
    """Result of `ordered_match`.

    Attributes:
        recall: The best sum of cosines over the number of anchor tokens, float32 [responses].
        precision: The same over the number of the response's tokens, float32 [responses].
        scored: Whether response and anchor have a token with a direction, [responses]; the other fields are 0 where
            not.
    """

    recall: Tensor
    precision: Tensor
    scored: Tensor


@torch.no_grad()
def ordered_match(
    responses: ResponseTokens,
    anchor: Float[Tensor, "anchor_tokens hidden"],
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> OrderedMatch:
    """The best pairing of a response's tokens with the anchor's that keeps their order.

    `D(t, s) = max(D(t - 1, s), D(t, s - 1), D(t - 1, s - 1) + cos(u_t, u_s))`, `R = D(n, m) / m`, `P = D(n, m) / n`.
    Each token has at most one partner, and partners do not cross, so that swapped or repeated steps
    do not count twice. With cosines 1 for equal tokens and 0 for others, D is their longest common
    subsequence.

    Args:
        responses: Token vectors of a group. Their lengths do not matter; the order of a response's tokens does.
        anchor: Token vectors of the anchor, in order.
        memory_bytes: Temporary-memory limit for products of tokens with tokens.

    Raises:
        ValueError: Shapes disagree, an index is out of range, or the limit is too low for one response.

    References:
        Ours; Needleman and Wunsch 1970, https://doi.org/10.1016/0022-2836(70)90057-4, without a penalty for gaps.

    Example:
        >>> group = ResponseTokens(torch.eye(2), torch.tensor([0, 0]), 1)
        >>> ordered_match(group, torch.eye(2)).recall, ordered_match(group, torch.eye(2).flip(0)).recall
        (tensor([1.]), tensor([0.5000]))
    """
    check_tokens(responses, anchor)
    counts = torch.bincount(responses.response_index, minlength=responses.num_responses)
    units = responses._replace(vectors=unit_tokens(responses.vectors))
    anchor_units = unit_tokens(anchor)
    sums = torch.zeros(responses.num_responses, dtype=torch.float64, device=anchor.device)
    for members, _, cosines in _cosine_tables(units, anchor_units, memory_bytes):
        sums[members] = _best_ordered_sums(cosines).double()
    return OrderedMatch(
        recall=(sums / max(1, len(anchor))).float(),
        precision=(sums / counts.clamp(min=1)).float(),
        scored=_has_direction(*units) & anchor_units.any(),
    )


def ordered_match_shares(
    responses: ResponseTokens,
    anchor: Float[Tensor, "anchor_tokens hidden"],
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Float32[Tensor, " tokens"]:
    """Share of each token in the recall of its response: its cosine with its partner over the anchor's tokens.

    The best sum is a sum of cosines, and its derivative by a cosine says whether that pair is part of it; where two
    pairings are equally good, shares are of their mean.

    Returns:
        float32; the shares of a response's tokens add up to its `ordered_match` recall.

    Raises:
        ValueError: As `ordered_match`.
    """
    check_tokens(responses, anchor)
    shares = torch.zeros(len(responses.vectors), device=anchor.device)
    units = responses._replace(vectors=unit_tokens(responses.vectors))
    for _, rows, cosines in _cosine_tables(units, unit_tokens(anchor), memory_bytes):
        with torch.enable_grad():
            leaf = cosines.requires_grad_()
            (chosen,) = torch.autograd.grad(_best_ordered_sums(leaf).sum(), leaf)
        gains = (chosen * cosines.detach()).sum(-1) / len(anchor)
        shares[rows[rows >= 0]] = gains[rows >= 0].float()
    return shares


def _cosine_tables(
    units: ResponseTokens, anchor_units: Tensor, memory_bytes: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield a few responses at a time: indices, the rows of their tokens, and the cosines with the anchor's tokens.

    Yields:
        [members], [members, longest] with -1 behind the last token, and [members, longest, anchor_tokens], 0 there.
    """
    vectors, index, num_responses = units
    counts = torch.bincount(index, minlength=num_responses)
    longest = int(counts.max()) if len(index) else 0
    if not longest or not len(anchor_units):
        return
    order = torch.argsort(index, stable=True)
    places = torch.arange(len(index), device=index.device) - (counts.cumsum(0) - counts)[index[order]]
    rows = torch.full((num_responses, longest), -1, device=index.device)
    rows[index[order], places] = order
    step = rows_at_once(longest * len(anchor_units), memory_bytes)
    for members in counts.nonzero()[:, 0].split(step):
        member_rows = rows[members]
        with torch.no_grad(), exact_products(vectors.device):
            cosines = vectors[member_rows.clamp(min=0)] @ anchor_units.T
        yield members, member_rows, cosines.masked_fill_((member_rows < 0)[..., None], 0.0)


def _best_ordered_sums(cosines: Tensor) -> Tensor:
    """D(n, m) of each [tokens, anchor_tokens] table, row by row of all tables at once."""
    best = cosines.new_zeros(cosines.shape[0], cosines.shape[2] + 1)
    for row in cosines.unbind(1):
        paired = torch.maximum(best[:, 1:], best[:, :-1] + row)
        best = torch.cat([best[:, :1], paired], 1).cummax(1).values
    return best[:, -1]
