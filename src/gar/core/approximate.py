"""Gradient-activation vectors for less: unlikely token ids and nearly certain tokens are left out, within a bound.

What is left out of `g_t = sum over v != y of p_v (W_v - W_y)` is known: its probability q_t. With `w_j = max_v |W_vj|`

    ||u'_t - u_t|| <= q_t ||w * h_t||,

where only ids are left out, and twice that with q_t = 1 - p_y where the whole token is. The mean over a response's
tokens bounds `||s' - s||`, and so the angle between its vector and the exact one.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.nn import functional as F

from gar.core.gradients import SignalKind, activated, check_inputs, check_settings
from gar.core.head import (
    DEFAULT_MEMORY_BYTES,
    Head,
    Plan,
    Precision,
    exact_products,
    excluded_softmax,
    make_plan,
    product,
    raw_logits,
    tiles,
)

_DENSE_SHARE = 1 / 32
"""With more of a tile's entries kept, its second product is faster as a dense one."""


class Thresholds(NamedTuple):
    """What is left out.

    Attributes:
        sparse: Token ids v != y with p_v below this, from the second product with W.
        gate: Tokens with 1 - p_y below this, as if their u_t were zero. They still count in the mean.
    """

    sparse: float = 0.0
    gate: float = 0.0


class ApproximateMeans(NamedTuple):
    """Mean vectors, and how far they may be from the exact ones.

    Attributes:
        means: float32 [responses, hidden], as of `gradient_activation_means`.
        bounds: float64 [responses]: `||s' - s||` is at most this, rounding aside.
    """

    means: Tensor
    bounds: Tensor


@torch.no_grad()
def approximate_means(
    hidden: Float[Tensor, "tokens hidden"],
    lm_head_weight: Float[Tensor, "vocab hidden"],
    target_ids: Int[Tensor, " tokens"],
    response_index: Int[Tensor, " tokens"],
    *,
    num_responses: int,
    thresholds: Thresholds,
    signal: SignalKind = "gradient-activation",
    bias: Float[Tensor, " vocab"] | None = None,
    temperature: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    activation_threshold: float = 0.0,
    precision: Precision = "auto",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> ApproximateMeans:
    """Mean gradient-activation vector of each response, without what hardly counts in it.

    The first product with W, which gives the probabilities, is exact. The second one goes over the ids and tokens that
    are left, so that at best the work halves.

    Args:
        hidden: As in `gradient_activation_vectors`, and so the arguments not named here.
        lm_head_weight: W.
        target_ids: Token ids.
        response_index: Which response a token belongs to, in [0, num_responses).
        num_responses: Rows of the result.
        thresholds: What is left out; zeros leave out nothing.
        signal: "gradient-activation" or "gradient".
        bias: The head's bias.
        temperature: Divides the logits.
        logit_scale: Multiplies W h + bias.
        logit_softcap: `cap * tanh(z / cap)`.
        activation_threshold: tau_a.
        precision: Of the products with W.
        memory_bytes: Most memory to use beside arguments and result. Whole rows of logits must fit: at least about
            12 bytes for each token id.

    Raises:
        ValueError: As `gradient_activation_vectors`; a threshold outside [0, 1); signal "hidden", which has no product
            with W; too little memory for a row of logits.

    References:
        The vectors: GAR, arXiv 2609.03342, eqs. 2-4. The bound is ours.

    Example:
        >>> h = torch.tensor([[1.0, 0.0]])
        >>> W = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-9.0, 0.0]])  # p = (0.88, 0.12, 0.00001)
        >>> found = approximate_means(
        ...     h, W, torch.tensor([0]), torch.tensor([0]), num_responses=1, thresholds=Thresholds(sparse=0.01)
        ... )
        >>> found.means, found.bounds  # exact: (-0.2385, 0), so the bound holds
        (tensor([[-0.2384,  0.0000]]), tensor([0.0001], dtype=torch.float64))
    """
    head = Head(lm_head_weight.detach(), bias, temperature, logit_scale, logit_softcap)
    check_inputs(hidden, head, target_ids, response_index, num_responses)
    check_settings(head, signal, activation_threshold, torch.ones(()), num_responses)
    if signal == "hidden":
        raise ValueError("signal must be gradient-activation or gradient, got 'hidden', which has nothing to leave out")
    for name, value in thresholds._asdict().items():
        if not 0 <= value < 1:
            raise ValueError(f"thresholds.{name} must lie in [0, 1), got {value}")
    plan = _whole_rows(make_plan(hidden, head, precision=precision, memory_bytes=memory_bytes), head, memory_bytes)
    largest = _largest_entries(head, plan)

    sums = torch.zeros(num_responses, hidden.shape[1], dtype=torch.float64, device=hidden.device)
    errors = torch.zeros(num_responses, dtype=torch.float64, device=hidden.device)
    for start in range(0, len(hidden), plan.chunk_tokens):
        rows = slice(start, start + plan.chunk_tokens)
        h = hidden[rows].detach().to(plan.dtype)
        with exact_products(), torch.autocast(hidden.device.type, enabled=False):
            gradients, left_out = _hidden_gradients(h, target_ids[rows], head, thresholds, plan)
        activations = activated(h, activation_threshold) if signal == "gradient-activation" else torch.ones_like(h)
        sums.index_add_(0, response_index[rows], (gradients * activations).double())
        errors.index_add_(0, response_index[rows], (left_out * (largest * activations).norm(dim=-1)).double())
    counts = torch.bincount(response_index, minlength=num_responses).clamp(min=1)
    return ApproximateMeans((sums / counts[:, None]).float(), errors / counts)


def largest_angles(
    means: Float[Tensor, "responses hidden"], bounds: Float[Tensor, " responses"]
) -> Float64[Tensor, " responses"]:
    """Largest angle, in radians, between each vector and the exact one: at most pi, where nothing is known.

    The cosine of two vectors is off by at most the sum of their angles.

    Args:
        means: From `approximate_means`.
        bounds: Of these means.

    Example:
        >>> largest_angles(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), torch.tensor([2.5, 0.6]))
        tensor([0.5236, 3.1416], dtype=torch.float64)
    """
    shares = bounds.double() / means.double().norm(dim=-1)
    return torch.where(shares < 1, shares.clamp(max=1).asin(), math.pi).masked_fill(bounds == 0, 0.0)


def _largest_entries(head: Head, plan: Plan) -> Tensor:
    """`max_v |slope_v W_vj|` at most, [hidden], without a copy of W."""
    largest = torch.zeros(head.weight.shape[1], dtype=plan.dtype, device=head.weight.device)
    for _, tile, _ in tiles(head, plan):
        torch.maximum(largest, tile.amax(0), out=largest)
        torch.maximum(largest, tile.amin(0).neg(), out=largest)
    return head.slope * largest


def _whole_rows(plan: Plan, head: Head, memory_bytes: int) -> Plan:
    """The plan with as many tokens at one time as whole rows of logits fit into half of the memory."""
    row = len(head.weight) * (plan.dtype.itemsize + 2)  # logits, and which of them count
    if 2 * row > memory_bytes:
        raise ValueError(
            f"memory_bytes must be at least {2 * row} for a row of logits with {len(head.weight)} token ids, got "
            f"{memory_bytes}: leaving some out needs all of a token's probabilities at one time"
        )
    return plan._replace(chunk_tokens=min(plan.chunk_tokens, memory_bytes // (2 * row)), triton=False)


def _hidden_gradients(
    h: Tensor, targets: Tensor, head: Head, thresholds: Thresholds, plan: Plan
) -> tuple[Tensor, Tensor]:
    """Approximate `dCE/dh_t`, [tokens, hidden], and the probability that was left out of each, [tokens]."""
    found = excluded_softmax(raw_logits(h, head, plan), targets, head)
    kept = found.exponentials
    if thresholds.sparse > 0:
        kept.masked_fill_(kept < thresholds.sparse * found.partition[:, None], 0.0)
    missing = (found.total - kept.sum(-1)).clamp(min=0.0) / found.partition
    gated = found.complement < thresholds.gate  # not where it is NaN, which is to show
    open_rows = (~gated).nonzero()[:, 0]
    if len(open_rows) < len(h):
        kept = kept[open_rows]
    if head.logit_softcap is not None:
        kept *= found.slopes[open_rows]
    others = _weighted_rows(kept, head, plan) / found.total[open_rows, None]
    if head.logit_softcap is None:
        others *= head.slope
    target_rows = found.target_slopes[open_rows, None] * head.weight[targets[open_rows]].to(h.dtype)
    gradients = torch.zeros_like(h)
    gradients[open_rows] = found.complement[open_rows, None] * (others - target_rows)
    return gradients, torch.where(gated, 2 * found.complement, missing)


def _weighted_rows(weights: Tensor, head: Head, plan: Plan) -> Tensor:
    """`weights @ W`, [tokens, hidden], for weights of which most are zero."""
    sums = weights.new_zeros(len(weights), head.weight.shape[1])
    for start, tile, _ in tiles(head, plan):
        part = weights[:, start : start + len(tile)]
        if torch.count_nonzero(part) > _DENSE_SHARE * part.numel():
            sums += product(part.to(plan.products), tile, plan)
        else:
            tokens, ids = part.nonzero(as_tuple=True)
            offsets = torch.searchsorted(tokens, torch.arange(len(part), device=tokens.device))
            values = part[tokens, ids].to(tile.dtype)
            sums += F.embedding_bag(ids, tile, offsets, mode="sum", per_sample_weights=values)
    return sums
