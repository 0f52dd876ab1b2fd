"""Gradient-activation vectors: one vector summarizing a sequence's gradient through the LM head.

For a token y predicted from the hidden state h with logits z = W h, the gradient of the cross-entropy with respect to
h is `W^T (p - e_y)`: no backward pass is needed. It is multiplied by h elementwise, averaged over the sequence, and
scaled to unit length. Before scaling, entry j is the derivative of the sequence's mean loss with respect to a factor on
dimension j of all its hidden states. It is not a gradient of the head's weights. Logits exist for one chunk of tokens
and one tile of W at a time.

If ranks hold parts of W (tensor parallelism), a token needs three numbers from all of them: z_y, and the sums of
exp(z - z_y - 20) over v != y and at y. After them everything is linear in the parts: each rank sums its part over the
tokens of a response, and one reduction of [responses, hidden] completes the sums. Thanks to the margin of 20, ranks
exchange the largest logit only for tokens with log p_y below about -108.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
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
    check_shapes,
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
from gar.core.ranks import Ranks, gather_tokens

NORM_FLOOR = 1e-8
"""Below this norm a mean vector has no usable direction [GAR paper, C.5]."""


@torch.no_grad()
def response_means(
    tokens: ScoredTokens, head: Head, signal: Signal, *, ranks: Ranks = Ranks(), budget: Budget = Budget()
) -> Float32[Tensor, "responses hidden"]:
    """Mean gradient-activation vector `s` of each response. `unit_rows` scales them to unit length.

    `u_t = (W^T (p_t - e_{y_{t+1}})) * h_t`, `s = mean over the response's tokens of u_t`. Every engine's vectors come
    from here. With `ranks` it is a collective: all ranks call it together and get the same result.

    Args:
        tokens: The scored tokens of all responses. With a split head, the same tokens on each of its ranks: gather them
            with `gather_tokens` under sequence parallelism. With a split context, this rank's tokens.
        head: The LM head, or this rank's rows of it. Never differentiated.
        signal: Which u_t, and which tokens are averaged. If norms on two ranks are equal, the lower rank's token is
            kept.
        ranks: How head and tokens are split over processes. By default they are not.
        budget: Memory, and precision of the products with W.

    Returns:
        float32. Zero rows for responses without tokens. Rows that are not finite are returned as they are. Softmax and
        norms are float32 (float64 for float64 input) whatever the inputs' dtype. Sums over tokens are float64.

    Raises:
        ValueError: Shapes or devices disagree, an index or a target is out of range, a setting is unknown or out of
            range, or the memory is too little for one token. Shards overlap or leave token ids out, or ranks differ in
            tokens or responses. If one rank finds a fault, all raise it.

    References:
        GAR, arXiv 2609.03342, eqs. 2-4. tau_a and p_f are our reading of two undefined settings of that paper.

    Example:
        >>> h, zero = torch.tensor([[1.0, 2.0]]), torch.tensor([0])
        >>> W = torch.tensor([[1.0, 0.0], [0.0, 0.5]])  # both logits are 1, so p = (1/2, 1/2)
        >>> response_means(ScoredTokens(h, zero, zero, 1), Head(W), Signal())
        tensor([[-0.5000,  0.5000]])
    """
    plan = _agreed_plan(tokens, head, signal, ranks, budget)
    head = ranks.own_rows(head)
    if signal.kind == "hidden":
        ranks = ranks._replace(vocab=None)  # u_t does not read the head
    hidden, _, index, num_responses = tokens
    kept = signal.kept(tokens)
    is_ranked = (kept < 1)[index]  # tokens of responses that keep only their strongest tokens
    some_ranked = bool((kept < 1).any())

    is_fused = plan.triton and signal.kind != "hidden" and signal.activation_threshold == 0 and not some_ranked
    sums = torch.zeros(num_responses, hidden.shape[1], dtype=torch.float64, device=hidden.device)
    norms = [torch.zeros(0, dtype=plan.dtype, device=hidden.device)]
    for rows, h, chunk in token_sums(tokens, head, signal, plan, ranks):
        if is_fused:
            from gar.core.cuda import add_response_sums

            assert chunk is not None
            activations = h if signal.kind == "gradient-activation" else None
            add_response_sums(sums, chunk, activations, head, tokens.target_ids[rows], index[rows])
            continue
        u = contributions(h, chunk, signal)
        if some_ranked:
            norms.append(ranks.add_parts(u[is_ranked[rows]]).norm(dim=-1))
            u = u.masked_fill(is_ranked[rows][:, None], 0.0)
        sums.index_add_(0, index[rows], u.double())
    chosen = ~is_ranked
    if some_ranked:
        ranked = is_ranked.nonzero()[:, 0]
        strongest = ranked[_strongest_tokens(torch.cat(norms), index[ranked], kept, ranks.context)]
        chosen[strongest] = True
        for rows in strongest.split(plan.chunk_tokens):  # a second pass: all u_t might exceed the memory
            for _, h, chunk in token_sums(tokens.at(rows), head, signal, plan, ranks):
                sums.index_add_(0, index[rows], contributions(h, chunk, signal).double())
    ranks.add_parts(sums)
    counts = torch.bincount(index[chosen], minlength=num_responses)
    return (ranks.add_context(sums) / ranks.add_context(counts).clamp(min=1)[:, None]).float()


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
    """`response_means` of plain tensors, on one rank.

    The arguments are the fields of `ScoredTokens`, `Head` (`lm_head_weight` is its weight), `Signal` (`signal` is its
    kind) and `Budget`.

    Returns:
        As `response_means`. The norm of a row is the strength of the signal.

    Raises:
        ValueError: As `response_means`.

    Example:
        >>> h = torch.tensor([[1.0, 2.0]])
        >>> W = torch.tensor([[1.0, 1.0], [-1.0, 0.0]])  # p - e_0 = (-p_1, p_1), so u = -p_1 (2, 1) * (1, 2)
        >>> unit_rows(gradient_activation_means(h, W, torch.tensor([0]), torch.tensor([0]), num_responses=1))
        tensor([[-0.7071, -0.7071]])
    """
    return response_means(
        ScoredTokens(hidden, target_ids, response_index, num_responses),
        Head(lm_head_weight, bias, temperature, logit_scale, logit_softcap),
        Signal(signal, activation_threshold, keep_fraction),
        budget=Budget(memory_bytes, chunk_tokens, precision),
    )


def unit_rows(means: Float[Tensor, "responses hidden"]) -> Float32[Tensor, "responses hidden"]:
    """Each row scaled to unit length. A zero row if its norm is under 1e-8 or not finite."""
    rows = means.double()
    norms = rows.norm(dim=-1, keepdim=True)
    usable = norms.isfinite() & (norms >= NORM_FLOOR)
    return torch.where(usable, rows / norms.where(usable, 1.0), 0.0).float()


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
    up to it. If a token's share is negative, its gradient points away from the anchor's.

    Args:
        tokens: The scored tokens of all responses.
        head: The LM head.
        anchors: Unit rows. Row i is the anchor of response i. A zero row has no signal.
        signal: Which u_t. All tokens count: `keep_fraction` is not read.
        budget: Memory and precision.

    Returns:
        float32, computed with float64 sums. 0 if the response or its anchor has no usable vector.

    Raises:
        ValueError: As `response_means`, or `anchors` have a different width, or not one row per response.

    References:
        Ours. GAR, arXiv 2609.03342, eqs. 4 and 5.

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


def token_sums(
    tokens: ScoredTokens, head: Head, signal: Signal, plan: Plan, ranks: Ranks = Ranks()
) -> Iterator[tuple[slice, Tensor, SoftmaxSums | None]]:
    """Rows, hidden states and vocabulary sums, chunk by chunk. The kind "hidden" needs no sums.

    A chunk takes two products with W, and one pass of exponentials between them.
    """
    for start in range(0, len(tokens.hidden), plan.chunk_tokens):
        rows = slice(start, start + plan.chunk_tokens)
        h = tokens.hidden[rows].detach().to(plan.dtype)
        if signal.kind == "hidden":
            yield rows, h, None
            continue
        ids = tokens.target_ids[rows] - (0 if ranks.vocab is None else ranks.vocab.first_id)
        with exact_products(h.device):
            target_rows, target_raw = _at_targets(h, ids, head, ranks)
            target_logits, target_slopes = logits_of(target_raw, head)
            reference = target_logits + REFERENCE_MARGIN
            total, at_target, weighted = exponential_sums(h, ids, head, reference, plan, ranks)
            overflowed = ~total.isfinite()  # identical on all ranks, as all_reduce guarantees
            if bool(overflowed.any()):  # log p_y below about -108, or not finite anyway
                subset, subset_ids = h[overflowed], ids[overflowed]
                largest = largest_logits(subset, head, plan, ranks)
                again = exponential_sums(subset, subset_ids, head, largest, plan, ranks)
                total[overflowed], at_target[overflowed], weighted[overflowed] = again
        yield rows, h, SoftmaxSums.of(total, at_target, weighted, target_slopes, target_rows)


def contributions(h: Tensor, sums: SoftmaxSums | None, signal: Signal) -> Tensor:
    """u_t of a chunk, [tokens, hidden], or this rank's part of it. Dimensions below tau_a of the largest are zero."""
    if sums is None:
        return h
    u = sums.hidden_gradients()
    if signal.kind == "gradient-activation":
        u *= h
        if signal.activation_threshold > 0:
            magnitudes = h.abs()
            u *= magnitudes >= signal.activation_threshold * magnitudes.amax(-1, keepdim=True)
    return u


def _agreed_plan(tokens: ScoredTokens, head: Head, signal: Signal, ranks: Ranks, budget: Budget) -> Plan:
    """Check the arguments of all ranks. Chunks are planned for the whole head, so they are the same on all ranks."""
    vocab_size = len(head.weight) if ranks.vocab is None else ranks.vocab.vocab_size
    plan = fault = None
    try:
        check_arguments(tokens, head, signal, vocab_size)
        plan = make_plan(tokens.hidden, head, budget, vocab_size)
    except ValueError as error:
        fault = str(error)
    ranks.agree(fault, tokens, head)
    assert plan is not None
    return plan._replace(triton=plan.triton and ranks.vocab is None)


def _at_targets(h: Tensor, ids: Tensor, head: Head, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """W_y of each token, zero where another rank has the row, and `W_y h + bias_y`."""
    if ranks.vocab is None:
        rows = head.weight[ids].to(h.dtype)
        raw = (h * rows).sum(-1)
        return rows, raw if head.bias is None else raw + head.bias[ids].to(h.dtype)
    is_here = (ids >= 0) & (ids < len(head.weight))
    rows, raw = torch.zeros_like(h), h.new_zeros(len(h))
    rows[is_here], raw[is_here] = _at_targets(h[is_here], ids[is_here], head, Ranks())
    return rows, ranks.add_parts(raw)


def _strongest_tokens(
    norms: Tensor, response_index: Tensor, keep_fraction: Tensor, context: dist.ProcessGroup | None = None
) -> Tensor:
    """Mask of the `ceil(p_f * n)` tokens of each response with the largest norms. Of equal norms the first is kept.

    With `context`, a response has tokens on all ranks, and the mask covers this rank's.
    """
    if context is not None:
        ranks = torch.full_like(norms, dist.get_rank(context))
        gathered = gather_tokens(torch.stack([norms, response_index.to(norms), ranks], dim=1).double(), context)
        strongest = _strongest_tokens(gathered[:, 0], gathered[:, 1].long(), keep_fraction)
        return strongest[gathered[:, 2] == dist.get_rank(context)]
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
