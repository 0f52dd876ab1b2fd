"""Token attribution: how much each token of a response adds to its alignment. Exact, since the alignment is a sum."""

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from gar.core.arguments import Budget, Head, ScoredTokens, Signal, check_arguments
from gar.core.checks import check_shapes
from gar.core.head import make_plan
from gar.core.vectors import NORM_FLOOR, contributions, token_sums


@torch.no_grad()
def alignment_shares(
    tokens: ScoredTokens,
    head: Head,
    anchors: Float[Tensor, "responses hidden"],
    signal: Signal,
    budget: Budget,
) -> Float32[Tensor, " tokens"]:
    """Share of each token in its response's alignment: `(u_t . v_a) / (n ||s||)`.

    The alignment is `v . v_a` with `v = s / ||s||` and `s = (1/n) sum_t u_t`, so the shares of a response's tokens add
    up to it. A negative share is a token whose gradient points away from the anchor's.

    Args:
        tokens: The scored tokens of all responses.
        head: The LM head.
        anchors: Unit rows; row i is the anchor of response i. A zero row has no signal.
        signal: Which u_t. All tokens count: `keep_fraction` is not read.
        budget: Memory and precision.

    Returns:
        float32, computed with float64 sums. 0 where the response or its anchor has no usable vector.

    Raises:
        ValueError: As `response_means`; or `anchors` have another width, or not one row per response.

    References:
        Ours; GAR, arXiv 2609.03342, eqs. 4 and 5.

    Example:
        >>> h = torch.tensor([[1.0, 2.0], [3.0, 0.0]])  # u = -p_1 (2, 1) * h = (-0.036, -0.036) and (-0.015, 0)
        >>> W = torch.tensor([[1.0, 1.0], [-1.0, 0.0]])
        >>> both = torch.tensor([0, 0])
        >>> alignment_shares(ScoredTokens(h, both, both, 1), Head(W), torch.tensor([[-1.0, 0.0]]), Signal(), Budget())
        tensor([0.5778, 0.2383])
    """
    check_arguments(tokens, head, signal, len(head.weight))
    plan = make_plan(tokens.hidden, head, budget)
    hidden, _, response_index, num_responses = tokens
    check_shapes((num_responses, hidden.shape[1]), anchors=anchors)
    directions = anchors.double()
    sums = torch.zeros_like(directions)
    projections = torch.zeros(len(hidden), dtype=torch.float64, device=hidden.device)
    for rows, h, chunk in token_sums(tokens, head, signal, plan):
        index, u = response_index[rows], contributions(h, chunk, signal).double()
        sums.index_add_(0, index, u)
        projections[rows] = (u * directions[index]).sum(-1)
    norms = sums.norm(dim=-1)  # n ||s||
    counts = torch.bincount(response_index, minlength=num_responses)
    usable = norms.isfinite() & (norms >= NORM_FLOOR * counts) & (directions != 0).any(-1)
    shares = projections / norms.where(usable, 1.0)[response_index]
    return shares.where(usable[response_index], 0.0).float()
