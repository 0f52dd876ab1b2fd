"""Gradient-activation vectors where the policy's logits exist already: one product with the head instead of two.

A training engine that computes log-probabilities has three things at its LM head: the hidden states h, the raw logits
z = W h + bias, and W. Only `W^T (p - e_y)` remains, one matrix product over the scored tokens. Logits are copied
chunk by chunk, so the engine's logits are unchanged.
"""

import torch
import torch.distributed as dist
from jaxtyping import Float, Float32, Int
from torch import Tensor

from gar.core.arguments import Budget, Head, ScoredTokens, Signal, check_arguments, check_range
from gar.core.closed_form import SoftmaxSums
from gar.core.gradients import token_contributions
from gar.core.head import Plan, logits_of, make_plan, tiles
from gar.core.response_sums import ResponseSums


@torch.no_grad()
def means_from_logits(
    tokens: ScoredTokens,
    raw_logits: Float[Tensor, "rows vocab"],
    positions: Int[Tensor, " tokens"],
    head: Head,
    signal: Signal,
    *,
    context_group: dist.ProcessGroup | None = None,
    chunk_tokens: int | None = None,
) -> Float32[Tensor, "responses hidden"]:
    """Mean gradient-activation vector `s` of each response; `unit_rows` scales them to unit length.

    Equals `gradient_activation_means` to the precision of `raw_logits`: in bfloat16 they carry 8 bits, and so do the
    probabilities. Everything after them is float32, sums are float64.

    Args:
        tokens: The scored tokens of this rank.
        raw_logits: The head's output `W h + bias` before scale, soft-cap and temperature. Not changed.
        positions: The row of `raw_logits` that belongs to each token. Other rows are not read.
        head: The whole LM head. Its bias is not read: the logits hold it.
        signal: Which u_t, and which tokens are averaged.
        context_group: Ranks that hold other tokens of the same responses (sequence or context parallelism); sums and
            counts are added over them. None where this rank has all tokens.
        chunk_tokens: Tokens whose logits are copied at one time. None chooses; the result does not depend on it.

    Returns:
        float32; zero rows for responses without tokens. Rows that are not finite are returned as they are.

    Raises:
        ValueError: As `gradient_activation_vectors`, or `positions` are not rows of `raw_logits`.

    References:
        GAR, arXiv 2609.03342, eqs. 2-4.

    Example:
        >>> h, zero = torch.tensor([[1.0, 2.0]]), torch.tensor([0])
        >>> W = torch.tensor([[1.0, 0.0], [0.0, 0.5]])  # both logits are 1, so p = (1/2, 1/2)
        >>> means_from_logits(ScoredTokens(h, zero, zero, 1), h @ W.T, zero, Head(W), Signal())
        tensor([[-0.5000,  0.5000]])
    """
    if raw_logits.shape[1] != len(head.weight):
        raise ValueError(
            f"raw_logits must have shape [rows, vocab], expected {len(head.weight)} columns, got "
            f"{tuple(raw_logits.shape)}. Is the weight a shard?"
        )
    check_range("positions", positions, len(raw_logits), "Were other ranks' tokens left out?")
    check_arguments(tokens, head, signal)
    plan = make_plan(tokens.hidden, head, Budget(chunk_tokens=chunk_tokens, precision="float32"))

    def hidden_gradients(rows: slice, h: Tensor) -> Tensor:
        raw = raw_logits[positions[rows]].to(h.dtype)  # a copy
        targets = tokens.target_ids[rows]
        return _softmax_sums(raw, targets, head, plan).hidden_gradients(head.weight[targets].to(h.dtype))

    sums = ResponseSums(tokens, signal, context_group=context_group)
    for rows, u in token_contributions(tokens.hidden, signal, plan, hidden_gradients):
        sums.add(rows, u)
    return sums.means()


def _softmax_sums(raw: Tensor, targets: Tensor, head: Head, plan: Plan) -> SoftmaxSums:
    """From whole rows of `W h + bias`, which are overwritten; one product with W."""
    logits, slopes = logits_of(raw, head)
    column = targets[:, None]
    target_logits = logits.gather(1, column)
    target_slopes = slopes.expand_as(logits).gather(1, column)[:, 0]
    exponentials = logits.scatter_(1, column, -torch.inf)
    reference = exponentials.amax(-1, keepdim=True)
    exponentials = exponentials.sub_(reference).exp_()
    total = exponentials.sum(-1)
    at_target = (target_logits - reference).exp()[:, 0]
    exponentials *= slopes
    weighted = torch.zeros(len(raw), head.weight.shape[1], dtype=raw.dtype, device=raw.device)
    for start, tile, _ in tiles(head, plan):
        weighted += exponentials[:, start : start + len(tile)] @ tile
    return SoftmaxSums.of(total, at_target, weighted, target_slopes)
