"""Gradient-activation vectors where the policy's logits exist already: one product with the head instead of two.

A training engine that computes log-probabilities has three things at its LM head: the hidden states h, the raw logits
z = W h + bias, and W. What is left is `W^T (p - e_y)`, one matrix product over the scored tokens. Logits are copied
chunk by chunk, so that those of the engine stay as they are.
"""

import torch
import torch.distributed as dist
from jaxtyping import Float, Float32, Int
from torch import Tensor

from gar.core.arguments import Budget, Head, ScoredTokens, Signal, SignalKind, check_arguments, check_range
from gar.core.closed_form import SoftmaxSums
from gar.core.gradients import token_contributions
from gar.core.head import Plan, logits_of, make_plan, tiles
from gar.core.response_sums import ResponseSums


@torch.no_grad()
def means_from_logits(
    hidden: Float[Tensor, "rows hidden"],
    raw_logits: Float[Tensor, "rows vocab"],
    lm_head_weight: Float[Tensor, "vocab hidden"],
    positions: Int[Tensor, " tokens"],
    target_ids: Int[Tensor, " tokens"],
    response_index: Int[Tensor, " tokens"],
    *,
    num_responses: int,
    signal: SignalKind = "gradient-activation",
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    activation_threshold: float = 0.0,
    keep_fraction: float | Float[Tensor, " responses"] = 1.0,
    context_group: dist.ProcessGroup | None = None,
    chunk_tokens: int | None = None,
) -> Float32[Tensor, "responses hidden"]:
    """Mean gradient-activation vector `s` of each response; `unit_rows` makes vectors of them.

    Equals `gradient_activation_means` of the rows at `positions`, as exactly as `raw_logits` are known: in bfloat16
    they carry 8 bits, and so do the probabilities that follow. Everything after them is float32, sums are float64.

    Args:
        hidden: Inputs of the LM head at all positions of a batch, scored or not.
        raw_logits: What the head made of them, `W h + bias`, before scale, soft-cap and temperature. Not changed.
        lm_head_weight: W. Never differentiated.
        positions: Rows of `hidden` and `raw_logits` that are scored.
        target_ids: `hidden[positions[t]]` predicts `target_ids[t]`.
        response_index: Which response a scored token belongs to, in [0, num_responses).
        num_responses: Rows of the result.
        signal: As in `gradient_activation_vectors`, and so the arguments not named here.
        temperature: Divides the logits.
        logit_scale: Multiplies W h + bias.
        logit_softcap: `cap * tanh(z / cap)`.
        activation_threshold: tau_a.
        keep_fraction: p_f.
        context_group: Ranks that hold other tokens of the same responses (sequence or context parallelism), over which
            sums and counts are added; None where this rank's tokens are all.
        chunk_tokens: Tokens whose logits are copied at one time. None chooses; the result does not depend on it.

    Returns:
        float32; zero rows for responses without tokens. Rows that are not finite are returned as they are.

    Raises:
        ValueError: As `gradient_activation_vectors`, or `positions` do not lie in the rows.

    References:
        GAR, arXiv 2609.03342, eqs. 2-4.

    Example:
        >>> h = torch.tensor([[9.0, 9.0], [1.0, 2.0]])
        >>> W = torch.tensor([[1.0, 0.0], [0.0, 0.5]])  # at the second row both logits are 1, so p = (1/2, 1/2)
        >>> at = torch.tensor([1])
        >>> means_from_logits(h, h @ W.T, W, at, torch.tensor([0]), torch.tensor([0]), num_responses=1)
        tensor([[-0.5000,  0.5000]])
    """
    head = Head(lm_head_weight, None, temperature, logit_scale, logit_softcap)
    chosen_signal = Signal(signal, activation_threshold, keep_fraction)
    if raw_logits.shape != (len(hidden), len(head.weight)):
        raise ValueError(
            f"raw_logits must have shape [rows, vocab], expected {(len(hidden), len(head.weight))}, got "
            f"{tuple(raw_logits.shape)}. Is the weight a shard?"
        )
    check_range("positions", positions, len(hidden), "Were other ranks' tokens left out?")
    tokens = ScoredTokens(hidden[positions], target_ids, response_index, num_responses)
    check_arguments(tokens, head, chosen_signal)
    plan = make_plan(tokens.hidden, head, Budget(chunk_tokens=chunk_tokens, precision="float32"))

    def hidden_gradients(rows: slice, h: Tensor) -> Tensor:
        raw = raw_logits[positions[rows]].to(h.dtype)  # a copy
        targets = target_ids[rows]
        return _softmax_sums(raw, targets, head, plan).hidden_gradients(head.weight[targets].to(h.dtype))

    sums = ResponseSums(tokens, chosen_signal, context_group=context_group)
    for rows, u in token_contributions(tokens.hidden, chosen_signal, plan, hidden_gradients):
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
