"""Gradient-activation vectors: one vector summarising a sequence's gradient through the LM head.

For a token y predicted from the hidden state h with logits z = W h, the gradient of the cross-entropy with respect to
h is `W^T (p - e_y)`: no backward pass is needed. Times h elementwise, averaged over the sequence, scaled to unit
length. Before scaling, entry j is the derivative of the sequence's mean loss by a factor on dimension j of all its
hidden states; it is not a gradient by the head's weights. The logits exist for one chunk of tokens and one tile of W at
a time and are never kept.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from gar.core.head import (
    DEFAULT_MEMORY_BYTES,
    REFERENCE_MARGIN,
    Head,
    Plan,
    Precision,
    exact_products,
    exponential_sums,
    largest_logits,
    logits_of,
    make_plan,
)

SignalKind = Literal["gradient-activation", "gradient", "hidden"]

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
        response_index: Which response a token belongs to, in [0, num_responses).
        num_responses: Rows of the result.
        signal: "gradient-activation", "gradient" (u_t = W^T(p - e), the paper's ablation) or "hidden" (u_t = h_t).
        bias: The head's bias.
        temperature: Divides the logits, after scale and soft-cap.
        logit_scale: Multiplies W h + bias (Cohere); for Granite, which divides, pass the inverse.
        logit_softcap: `cap * tanh(z / cap)` (Gemma 2).
        activation_threshold: tau_a: dimensions with `|h_tj| < tau_a * max_j |h_tj|` do not count in u_t.
        keep_fraction: p_f: only this share of a response's tokens, those with the largest `||u_t||`, is averaged.
            One number, or one per response.
        precision: Of the two matrix products with W. "float32" widens W tile by tile, without TF32. "storage" takes a
            bfloat16 W as it is, with float32 results on CUDA and bfloat16 ones on a CPU. "auto": storage for a large
            bfloat16 head on CUDA, else float32.
        chunk_tokens: Tokens whose logits exist at one time, at most. None chooses; the result does not depend on it.
        memory_bytes: Most memory to use beside arguments and result.

    Returns:
        float32, unit rows. A zero row where there is no signal: no tokens, a norm under 1e-8, or a value that is not
        finite. Softmax and norms are float32 (float64 for float64 input) whatever the inputs' dtype; sums over tokens
        are float64.

    Raises:
        ValueError: Shapes or devices disagree, an index or a target is out of range, or a setting is unknown, out of
            range, or too little memory for one token.

    References:
        GAR, arXiv 2609.03342, eqs. 2-4. tau_a and p_f are our reading of two undefined settings of that paper.

    Example:
        >>> h = torch.tensor([[1.0, 2.0]])
        >>> W = torch.tensor([[1.0, 1.0], [-1.0, 0.0]])  # p - e_0 = (-p_1, p_1), so u = -p_1 (2, 1) * (1, 2)
        >>> gradient_activation_vectors(h, W, torch.tensor([0]), torch.tensor([0]), num_responses=1)
        tensor([[-0.7071, -0.7071]])
    """
    means = gradient_activation_means(
        hidden, lm_head_weight, target_ids, response_index, num_responses=num_responses, signal=signal, bias=bias,
        temperature=temperature, logit_scale=logit_scale, logit_softcap=logit_softcap,
        activation_threshold=activation_threshold, keep_fraction=keep_fraction, precision=precision,
        chunk_tokens=chunk_tokens, memory_bytes=memory_bytes,
    )  # fmt: skip
    return unit_rows(means)


@torch.no_grad()
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
    head = Head(lm_head_weight.detach(), bias, temperature, logit_scale, logit_softcap)
    kept = torch.as_tensor(keep_fraction, dtype=torch.float64, device=hidden.device)
    check_inputs(hidden, head, target_ids, response_index, num_responses)
    check_settings(head, signal, activation_threshold, kept, num_responses)
    plan = make_plan(hidden, head, precision=precision, chunk_tokens=chunk_tokens, memory_bytes=memory_bytes)
    kept = kept.expand(num_responses)
    competes = (kept < 1)[response_index]  # a token whose response keeps only its strongest

    sums = torch.zeros(num_responses, hidden.shape[1], dtype=torch.float64, device=hidden.device)
    if plan.triton and signal != "hidden" and activation_threshold == 0 and not bool(competes.any()):
        _add_fused(sums, hidden, head, target_ids, response_index, signal, plan)
        return _divided(sums, torch.bincount(response_index, minlength=num_responses))
    norms = torch.zeros(len(hidden), dtype=plan.dtype, device=hidden.device)
    for rows, u in token_contributions(hidden, head, target_ids, signal, activation_threshold, plan):
        norms[rows] = u.norm(dim=-1)
        sums.index_add_(0, response_index[rows], u.double().masked_fill(competes[rows][:, None], 0.0))
    chosen = torch.ones_like(competes)
    if bool(competes.any()):
        chosen = strongest_tokens(norms, response_index, kept)
        again = (chosen & competes).nonzero()[:, 0]
        for rows in again.split(plan.chunk_tokens):
            (_, u), *_ = token_contributions(hidden[rows], head, target_ids[rows], signal, activation_threshold, plan)
            sums.index_add_(0, response_index[rows], u.double())
    return _divided(sums, torch.bincount(response_index[chosen], minlength=num_responses))


def _divided(sums: Tensor, counts: Tensor) -> Tensor:
    return (sums / counts.clamp(min=1)[:, None]).float()


def unit_rows(means: Float[Tensor, "responses hidden"]) -> Float32[Tensor, "responses hidden"]:
    """Each row scaled to unit length; a zero row where its norm is under 1e-8 or not finite."""
    rows = means.double()
    norms = rows.norm(dim=-1, keepdim=True)
    usable = norms.isfinite() & (norms >= NORM_FLOOR)
    return torch.where(usable, rows / norms.where(usable, 1.0), 0.0).float()


def token_contributions(
    hidden: Tensor, head: Head, targets: Tensor, signal: SignalKind, threshold: float, plan: Plan
) -> Iterator[tuple[slice, Tensor]]:
    """u_t of all tokens, chunk by chunk: which rows, and their [tokens, hidden]. The logits of one chunk at a time."""
    for rows, h, ids in _chunks(hidden, targets, plan):
        if signal == "hidden":
            yield rows, h
            continue
        with exact_products(), torch.autocast(hidden.device.type, enabled=False):
            u = _hidden_gradients(h, ids, head, plan)
        yield rows, u if signal == "gradient" else u * activated(h, threshold)


def activated(h: Tensor, threshold: float) -> Tensor:
    """h with the dimensions below tau_a of the largest set to zero."""
    if threshold == 0:
        return h
    magnitudes = h.abs()
    return h * (magnitudes >= threshold * magnitudes.amax(-1, keepdim=True))


def _chunks(hidden: Tensor, targets: Tensor, plan: Plan) -> Iterator[tuple[slice, Tensor, Tensor]]:
    for start in range(0, hidden.shape[0], plan.chunk_tokens):
        rows = slice(start, start + plan.chunk_tokens)
        yield rows, hidden[rows].detach().to(plan.dtype), targets[rows]


def _hidden_gradients(h: Tensor, targets: Tensor, head: Head, plan: Plan) -> Tensor:
    """`dCE/dh_t` in target-excluded form: `(1 - p_y) (sum_{v != y} q_v W_v - W_y)`, q = softmax over v != y.

    Forming p - e and multiplying loses every digit on confident tokens, where p_y rounds to 1: this form never
    subtracts. With soft-cap and scale each row of W carries the factor dz_v / d(W h)_v.
    """
    sums = softmax_sums(h, targets, head, plan)
    return sums.complement[:, None] * (sums.others - sums.target_slopes[:, None] * head.weight[targets].to(h.dtype))


class SoftmaxSums(NamedTuple):
    """What the tokens of a chunk need from the whole vocabulary.

    Attributes:
        complement: 1 - p_y, [tokens].
        others: `sum_{v != y} q_v slope_v W_v`, [tokens, hidden].
        target_slopes: `dz_y / d(W h)_y`, [tokens] or one for all.
        log_odds: `ln((1 - p_y) / p_y)`, [tokens].
    """

    complement: Tensor
    others: Tensor
    target_slopes: Tensor
    log_odds: Tensor


def softmax_sums(h: Tensor, targets: Tensor, head: Head, plan: Plan) -> SoftmaxSums:
    """Two products with W, one pass of exponentials between them."""
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
    others = weighted.div_(total.clamp(min=torch.finfo(total.dtype).tiny)[:, None])
    log_odds = total.log() - (target_logits - reference)
    return SoftmaxSums(total / (total + at_target), others, target_slopes, log_odds)  # both parts of one pass


def _add_fused(
    sums: Tensor, hidden: Tensor, head: Head, targets: Tensor, response_index: Tensor, signal: SignalKind, plan: Plan
) -> None:
    """Add all u_t to their responses' sums: what follows the second product is one Triton kernel, without atomics."""
    from gar.core.cuda import add_response_sums

    for rows, h, ids in _chunks(hidden, targets, plan):
        with torch.autocast(hidden.device.type, enabled=False):
            found = softmax_sums(h, ids, head, plan)
        activations = h if signal == "gradient-activation" else None
        add_response_sums(sums, found, activations, head, ids, response_index[rows])


def strongest_tokens(norms: Tensor, response_index: Tensor, keep_fraction: Tensor) -> Tensor:
    """Which tokens are among the `ceil(p_f * n)` of their response with the largest norms; the earlier wins a tie."""
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


def check_inputs(hidden: Tensor, head: Head, target_ids: Tensor, response_index: Tensor, num_responses: int) -> None:
    """Refuse shapes that disagree and indices out of range, with a ValueError."""
    if hidden.ndim != 2:
        raise ValueError(
            f"hidden must have shape [tokens, hidden], got {tuple(hidden.shape)}. Flatten the scored tokens of all "
            "responses into one list."
        )
    vocab, width = head.weight.shape
    if hidden.shape[1] != width:
        raise ValueError(
            f"hidden and lm_head_weight must agree in their last dimension, got {hidden.shape[1]} and {width}. "
            "Is the weight transposed?"
        )
    devices = {name: tensor.device for name, tensor in (("hidden", hidden), ("lm_head_weight", head.weight),
               ("target_ids", target_ids), ("response_index", response_index))}  # fmt: skip
    if len(set(devices.values())) > 1:
        raise ValueError(
            f"all arguments must lie on one device, got {', '.join(f'{n} on {d}' for n, d in devices.items())}"
        )
    if head.bias is not None and head.bias.shape != (vocab,):
        raise ValueError(f"bias must have one entry per token id, expected {vocab}, got {tuple(head.bias.shape)}")
    tokens = hidden.shape[0]
    for name, tensor in (("target_ids", target_ids), ("response_index", response_index)):
        if tensor.shape != (tokens,):
            raise ValueError(f"{name} must have one entry per token, expected {tokens}, got {tuple(tensor.shape)}")
    check_range("target_ids", target_ids, vocab, "Do the tokenizer and the model belong together?")
    check_range("response_index", response_index, num_responses, "Did a padding token keep its -1?")


def check_settings(head: Head, signal: str, threshold: float, kept: Tensor, num_responses: int) -> None:
    """Refuse settings that are unknown or out of range, with a ValueError."""
    if signal not in get_args(SignalKind):
        raise ValueError(f"signal must be one of {', '.join(get_args(SignalKind))}, got {signal!r}")
    softcap = head.logit_softcap
    for name, expected, value, holds in (
        ("temperature", "positive", head.temperature, head.temperature > 0),
        ("logit_scale", "positive", head.logit_scale, head.logit_scale > 0),
        ("logit_softcap", "positive or None", softcap, softcap is None or softcap > 0),
        ("activation_threshold", "in [0, 1]", threshold, 0 <= threshold <= 1),
        ("keep_fraction", "in (0, 1]", kept.tolist(), bool(((kept > 0) & (kept <= 1)).all())),
    ):
        if not holds:
            raise ValueError(f"{name} must be {expected}, got {value}")
    if kept.ndim and kept.shape != (num_responses,):
        raise ValueError(
            f"keep_fraction must be one number or one per response, expected {num_responses}, got {tuple(kept.shape)}"
        )


def check_range(name: str, index: Tensor, size: int, hint: str) -> None:
    """Refuse an index outside [0, size), with a ValueError."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        raise ValueError(f"{name} must lie in [0, {size}), got {int(index.min())} to {int(index.max())}. {hint}")
