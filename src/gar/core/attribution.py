"""Token attribution: how much each token of a response adds to its alignment. Exact, since the alignment is a sum."""

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from gar.core.arguments import (
    DEFAULT_MEMORY_BYTES,
    Budget,
    Head,
    Precision,
    ScoredTokens,
    Signal,
    SignalKind,
    check_arguments,
)
from gar.core.gradients import NORM_FLOOR, head_contributions
from gar.core.head import make_plan


def alignment_shares(
    hidden: Float[Tensor, "tokens hidden"],
    lm_head_weight: Float[Tensor, "vocab hidden"],
    target_ids: Int[Tensor, " tokens"],
    response_index: Int[Tensor, " tokens"],
    anchors: Float[Tensor, "responses hidden"],
    *,
    signal: SignalKind = "gradient-activation",
    bias: Float[Tensor, " vocab"] | None = None,
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    activation_threshold: float = 0.0,
    precision: Precision = "auto",
    chunk_tokens: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Float32[Tensor, " tokens"]:
    """Share of each token in its response's alignment: `(u_t . v_a) / (n ||s||)`.

    The alignment is `v . v_a` with `v = s / ||s||` and `s = (1/n) sum_t u_t`, so the shares of a response's tokens add
    up to it. A negative share is a token whose gradient points away from the anchor's.

    Args:
        hidden: Inputs of the LM head, as for `gradient_activation_vectors`, with the arguments not named here.
        lm_head_weight: W.
        target_ids: Token ids.
        response_index: Which response a token belongs to, in [0, responses).
        anchors: Unit rows; row i is the anchor of response i. A zero row has no signal.
        signal: Which u_t.
        bias: The head's bias.
        temperature: Divides the logits.
        logit_scale: Multiplies W h + bias.
        logit_softcap: `cap * tanh(z / cap)`.
        activation_threshold: tau_a.
        precision: Of the products with W.
        chunk_tokens: Tokens whose logits exist at one time, at most.
        memory_bytes: Most memory to use beside arguments and result.

    Returns:
        float32, computed with float64 sums. 0 where the response or its anchor has no usable vector.

    Raises:
        ValueError: As `gradient_activation_vectors`.

    References:
        Ours; GAR, arXiv 2609.03342, eqs. 4 and 5.

    Example:
        >>> h = torch.tensor([[1.0, 2.0], [3.0, 0.0]])  # u = -p_1 (2, 1) * h = (-0.036, -0.036) and (-0.015, 0)
        >>> W = torch.tensor([[1.0, 1.0], [-1.0, 0.0]])
        >>> both = torch.tensor([0, 0])
        >>> alignment_shares(h, W, both, both, torch.tensor([[-1.0, 0.0]]))
        tensor([0.5778, 0.2383])
    """
    return token_alignment_shares(
        ScoredTokens(hidden, target_ids, response_index, anchors.shape[0]),
        Head(lm_head_weight, bias, temperature, logit_scale, logit_softcap),
        anchors,
        Signal(signal, activation_threshold),
        Budget(memory_bytes, chunk_tokens, precision),
    )


@torch.no_grad()
def token_alignment_shares(tokens: ScoredTokens, head: Head, anchors: Tensor, signal: Signal, budget: Budget) -> Tensor:
    """`alignment_shares` of records, float32 [tokens]. All tokens count: the signal's `keep_fraction` is not read."""
    check_arguments(tokens, head, signal)
    plan = make_plan(tokens.hidden, head, budget)
    hidden, _, response_index, num_responses = tokens
    if anchors.shape[1] != hidden.shape[1]:
        raise ValueError(f"anchors must have the width of hidden, expected {hidden.shape[1]}, got {anchors.shape[1]}")

    directions = anchors.double()
    sums = torch.zeros_like(directions)
    projections = torch.zeros(len(hidden), dtype=torch.float64, device=hidden.device)
    for rows, u in head_contributions(tokens, head, signal, plan):
        index = response_index[rows]
        sums.index_add_(0, index, u.double())
        projections[rows] = (u.double() * directions[index]).sum(-1)
    norms = sums.norm(dim=-1)  # n ||s||
    counts = torch.bincount(response_index, minlength=num_responses)
    usable = norms.isfinite() & (norms >= NORM_FLOOR * counts) & (directions != 0).any(-1)
    shares = projections / norms.where(usable, 1.0)[response_index]
    return shares.where(usable[response_index], 0.0).float()
