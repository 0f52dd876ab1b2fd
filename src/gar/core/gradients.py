"""Gradient-activation vectors: one vector summarising a sequence's gradient through the LM head.

For a token y predicted from the hidden state h with logits z = W h, the gradient of the cross-entropy with respect to
h is `W^T (p - e_y)`: no backward pass is needed. It is multiplied by h elementwise, averaged over the sequence, and
scaled to unit length. Before scaling, entry j is the derivative of the sequence's mean loss with respect to a factor on
dimension j of all its hidden states; it is not a gradient of the head's weights. Logits exist for one chunk of tokens
and one tile of W at a time.
"""

from collections.abc import Callable, Iterator

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
from gar.core.closed_form import SoftmaxSums
from gar.core.head import (
    REFERENCE_MARGIN,
    Plan,
    exact_products,
    exponential_sums,
    largest_logits,
    logits_of,
    make_plan,
)

NORM_FLOOR = 1e-8
"""Below this norm a mean vector has no usable direction [GAR paper, C.5]."""


def gradient_activation_vectors(
    hidden: Float[Tensor, "tokens hidden"],
    lm_head_weight: Float[Tensor, "vocab hidden"],
    target_ids: Int[Tensor, " tokens"],
    response_index: Int[Tensor, " tokens"],
    *,
    num_responses: int,
    signal: SignalKind = "gradient-activation",
    bias: Float[Tensor, " vocab"] | None = None,
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    activation_threshold: float = 0.0,
    keep_fraction: float | Float[Tensor, " responses"] = 1.0,
    precision: Precision = "auto",
    chunk_tokens: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Float32[Tensor, "responses hidden"]:
    """Unit-length gradient-activation vector of each response.

    `u_t = (W^T (p_t - e_{y_{t+1}})) * h_t`, `s = mean over the response's tokens of u_t`, `v = s / ||s||`.

    Args:
        hidden: Inputs of the LM head. `hidden[t]` predicts `target_ids[t]`. Tokens of all responses in one list, in
            any order.
        lm_head_weight: W. Never differentiated.
        target_ids: Token ids.
        response_index: The response that a token belongs to, in [0, num_responses).
        num_responses: Rows of the result.
        signal: "gradient-activation", "gradient" (u_t = W^T(p - e), the paper's ablation) or "hidden" (u_t = h_t).
        bias: The head's bias.
        temperature: Divides the logits, after scale and soft-cap.
        logit_scale: Multiplies W h + bias (Cohere); for Granite, which divides, pass the inverse.
        logit_softcap: `cap * tanh(z / cap)` (Gemma 2).
        activation_threshold: tau_a: dimensions with `|h_tj| < tau_a * max_j |h_tj|` do not count in u_t.
        keep_fraction: p_f: only this share of a response's tokens, those with the largest `||u_t||`, is averaged.
            One number, or one per response.
        precision: Precision of the two matrix products with W. "float32" widens W tile by tile, without TF32. "storage"
            uses a bfloat16 W as it is, with float32 logits. "auto" is storage for a large bfloat16 head where the
            device has bfloat16 products (a GPU; a CPU with avx512_bf16 or amx_bf16), else float32.
        chunk_tokens: Largest number of tokens whose logits exist at one time. None chooses; the result does not depend
            on it.
        memory_bytes: Temporary-memory limit in bytes, excluding inputs and output.

    Returns:
        float32, unit rows. A zero row where there is no signal: no tokens, a norm under 1e-8, or a value that is not
        finite. Softmax and norms are float32 (float64 for float64 input) whatever the inputs' dtype; sums over tokens
        are float64.

    Raises:
        ValueError: Shapes or devices disagree, an index or a target is out of range, a setting is unknown or out of
            range, or the memory is too little for one token.

    References:
        GAR, arXiv 2609.03342, eqs. 2-4. tau_a and p_f are our reading of two undefined settings of that paper.

    Example:
        >>> h = torch.tensor([[1.0, 2.0]])
        >>> W = torch.tensor([[1.0, 1.0], [-1.0, 0.0]])  # p - e_0 = (-p_1, p_1), so u = -p_1 (2, 1) * (1, 2)
        >>> gradient_activation_vectors(h, W, torch.tensor([0]), torch.tensor([0]), num_responses=1)
        tensor([[-0.7071, -0.7071]])
    """
    means = response_means(
        ScoredTokens(hidden, target_ids, response_index, num_responses),
        Head(lm_head_weight, bias, temperature, logit_scale, logit_softcap),
        Signal(signal, activation_threshold, keep_fraction),
        Budget(memory_bytes, chunk_tokens, precision),
    )
    return unit_rows(means)


def gradient_activation_means(
    hidden: Float[Tensor, "tokens hidden"],
    lm_head_weight: Float[Tensor, "vocab hidden"],
    target_ids: Int[Tensor, " tokens"],
    response_index: Int[Tensor, " tokens"],
    *,
    num_responses: int,
    signal: SignalKind = "gradient-activation",
    bias: Float[Tensor, " vocab"] | None = None,
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    activation_threshold: float = 0.0,
    keep_fraction: float | Float[Tensor, " responses"] = 1.0,
    precision: Precision = "auto",
    chunk_tokens: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Float32[Tensor, "responses hidden"]:
    """Mean gradient-activation vector `s` of each response, before it is scaled to unit length.

    The norm of a row is the strength of the signal. Arguments, errors and precision: `gradient_activation_vectors`.

    Returns:
        float32; zero rows for responses without tokens. Rows that are not finite are returned as they are.
    """
    return response_means(
        ScoredTokens(hidden, target_ids, response_index, num_responses),
        Head(lm_head_weight, bias, temperature, logit_scale, logit_softcap),
        Signal(signal, activation_threshold, keep_fraction),
        Budget(memory_bytes, chunk_tokens, precision),
    )


@torch.no_grad()
def response_means(tokens: ScoredTokens, head: Head, signal: Signal, budget: Budget) -> Tensor:
    """`gradient_activation_means` with records as arguments, float32 [responses, hidden]."""
    check_arguments(tokens, head, signal)
    plan = make_plan(tokens.hidden, head, budget)
    hidden, _, index, num_responses = tokens
    kept = signal.kept(tokens)
    is_ranked = (kept < 1)[index]  # tokens of responses that keep only their strongest tokens

    sums = torch.zeros(num_responses, hidden.shape[1], dtype=torch.float64, device=hidden.device)
    if plan.triton and signal.kind != "hidden" and signal.activation_threshold == 0 and not bool(is_ranked.any()):
        _add_fused(sums, tokens, head, signal, plan)
        return mean_rows(sums, torch.bincount(index, minlength=num_responses))
    norms = torch.zeros(len(hidden), dtype=plan.dtype, device=hidden.device)
    for rows, u in head_contributions(tokens, head, signal, plan):
        norms[rows] = u.norm(dim=-1)
        sums.index_add_(0, index[rows], u.double().masked_fill(is_ranked[rows][:, None], 0.0))
    chosen = torch.ones_like(is_ranked)
    if bool(is_ranked.any()):
        chosen = strongest_tokens(norms, index, kept)
        strongest = (chosen & is_ranked).nonzero()[:, 0]
        for rows in strongest.split(plan.chunk_tokens):  # a second pass, since all u_t might exceed the memory
            ((_, u),) = head_contributions(tokens.at(rows), head, signal, plan)
            sums.index_add_(0, index[rows], u.double())
    return mean_rows(sums, torch.bincount(index[chosen], minlength=num_responses))


def mean_rows(sums: Tensor, counts: Tensor) -> Tensor:
    """Sums over tokens divided by the numbers of tokens, float32; zero where there are no tokens."""
    return (sums / counts.clamp(min=1)[:, None]).float()


def unit_rows(means: Float[Tensor, "responses hidden"]) -> Float32[Tensor, "responses hidden"]:
    """Each row scaled to unit length; a zero row where its norm is under 1e-8 or not finite."""
    rows = means.double()
    norms = rows.norm(dim=-1, keepdim=True)
    usable = norms.isfinite() & (norms >= NORM_FLOOR)
    return torch.where(usable, rows / norms.where(usable, 1.0), 0.0).float()


def token_contributions(
    hidden: Tensor, signal: Signal, plan: Plan, hidden_gradients: Callable[[slice, Tensor], Tensor]
) -> Iterator[tuple[slice, Tensor]]:
    """u_t of all tokens, chunk by chunk: the rows, and their u_t [tokens, hidden].

    Args:
        hidden: [tokens, hidden].
        signal: Which u_t. "hidden" does not use W.
        plan: From `make_plan`.
        hidden_gradients: Maps a chunk's rows and its hidden states in `plan.dtype` to `dCE/dh_t`, or to a rank's part.
    """
    for rows, h in _chunks(hidden, plan):
        if signal.kind == "hidden":
            yield rows, h
            continue
        with exact_products(hidden.device):
            u = hidden_gradients(rows, h)
        yield rows, u if signal.kind == "gradient" else u.mul_(_activated(h, signal.activation_threshold))


def head_contributions(tokens: ScoredTokens, head: Head, signal: Signal, plan: Plan) -> Iterator[tuple[slice, Tensor]]:
    """`token_contributions` with the whole head on this rank."""

    def hidden_gradients(rows: slice, h: Tensor) -> Tensor:
        targets = tokens.target_ids[rows]
        return softmax_sums(h, targets, head, plan).hidden_gradients(head.weight[targets].to(h.dtype))

    return token_contributions(tokens.hidden, signal, plan, hidden_gradients)


def _activated(h: Tensor, threshold: float) -> Tensor:
    """h with the dimensions below tau_a of the largest set to zero."""
    if threshold == 0:
        return h
    magnitudes = h.abs()
    return h * (magnitudes >= threshold * magnitudes.amax(-1, keepdim=True))


def _chunks(hidden: Tensor, plan: Plan) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, hidden.shape[0], plan.chunk_tokens):
        rows = slice(start, start + plan.chunk_tokens)
        yield rows, hidden[rows].detach().to(plan.dtype)


def softmax_sums(h: Tensor, targets: Tensor, head: Head, plan: Plan) -> SoftmaxSums:
    """Two products with W, and one pass of exponentials between them."""
    target_raw = (h * head.weight[targets].to(h.dtype)).sum(-1)
    if head.bias is not None:
        target_raw = target_raw + head.bias[targets].to(h.dtype)
    target_logits, target_slopes = logits_of(target_raw, head)
    reference = target_logits + REFERENCE_MARGIN
    total, at_target, weighted = exponential_sums(h, targets, head, reference, plan)
    overflowed = ~(total.isfinite() & weighted.isfinite().all(-1))
    if bool(overflowed.any()):  # log p_y below about -108, or not finite anyway
        subset, ids = h[overflowed], targets[overflowed]
        reference[overflowed] = largest = largest_logits(subset, head, plan)
        total[overflowed], at_target[overflowed], weighted[overflowed] = exponential_sums(
            subset, ids, head, largest, plan
        )
    return SoftmaxSums.of(total, at_target, weighted, target_slopes)


def _add_fused(sums: Tensor, tokens: ScoredTokens, head: Head, signal: Signal, plan: Plan) -> None:
    """Add all u_t to their responses' sums. One Triton kernel after the second product, without atomics."""
    from gar.core.cuda import add_response_sums

    for rows, h in _chunks(tokens.hidden, plan):
        targets = tokens.target_ids[rows]
        with torch.autocast(h.device.type, enabled=False):
            chunk = softmax_sums(h, targets, head, plan)
        activations = h if signal.kind == "gradient-activation" else None
        add_response_sums(sums, chunk, activations, head, targets, tokens.response_index[rows])


def strongest_tokens(norms: Tensor, response_index: Tensor, keep_fraction: Tensor) -> Tensor:
    """Mask of the `ceil(p_f * n)` tokens of each response with the largest norms. Of equal norms the first is kept."""
    by_norm = torch.argsort(norms, descending=True, stable=True)
    order = by_norm[torch.argsort(response_index[by_norm], stable=True)]
    counts = torch.bincount(response_index, minlength=len(keep_fraction))
    starts = counts.cumsum(0) - counts
    grouped = response_index[order]
    rank = torch.arange(len(order), device=order.device) - starts[grouped]
    # The slack, above float32's rounding, keeps 0.6 * 10 from becoming 7 tokens.
    quota = torch.ceil(keep_fraction * counts * (1.0 - 2e-7))
    chosen = torch.zeros(len(norms), dtype=torch.bool, device=norms.device)
    chosen[order[rank < quota[grouped]]] = True
    return chosen
