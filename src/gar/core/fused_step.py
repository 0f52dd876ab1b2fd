"""The training step and the signal from one pass through the LM head (experimental).

On policy, the policy-gradient loss of a response r is `c_r sum_t -log p(y_t)` with a factor c_r that holds its
advantage and the loss's normalisation. Its gradient at the head's input is `c_r g_t` with the same
`g_t = W^T (p_t - e_{y_t})` that the signal is made of. So g_t is taken once, without its factor, before there is an
advantage: vectors and rewards come from it, and then `c_r g_t` goes backward. What the signal still costs is its
anchors.

    found = head_pass(hidden, W, targets)              # hidden: what the backbone gave, with its graph
    s = response_means(found, hidden, index, ...)      # then unit rows, alignment, rewards, advantages, c
    head_backward(found, hidden, W, targets, index, c) # fills the gradients of W and of the backbone

Never the other way round: dL/dh carries the sign of c_r and vanishes where c_r is 0, in every silent group. The whole
group must be in one backward pass, and its factors constant within a response: a ratio other than 1, a temperature, a
KL or entropy term, token masks by entropy and importance weights per token need the two passes of any other trainer.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from gar.core.gradients import check_inputs, check_range, softmax_sums
from gar.core.head import DEFAULT_MEMORY_BYTES, Head, exact_products, make_plan, tiles


class HeadPass(NamedTuple):
    """What the tokens took from the head.

    Attributes:
        log_probs: Of the targets, [tokens].
        gradients: g_t, [tokens, hidden], without any factor.
        log_normalisers: `log sum_v exp z_v`, [tokens].
        complements: 1 - p_y, [tokens].
    """

    log_probs: Tensor
    gradients: Tensor
    log_normalisers: Tensor
    complements: Tensor


@torch.no_grad()
def head_pass(
    hidden: Float[Tensor, "tokens hidden"],
    lm_head_weight: Float[Tensor, "vocab hidden"],
    target_ids: Int[Tensor, " tokens"],
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> HeadPass:
    """Log-probabilities and unscaled gradients at the head's input; nothing is differentiated here.

    Args:
        hidden: Inputs of the LM head, `hidden[t]` predicts `target_ids[t]`.
        lm_head_weight: W.
        target_ids: Token ids.
        memory_bytes: Most memory to use beside arguments and result.

    Returns:
        All in float32, or float64 for float64 input.

    Raises:
        ValueError: Shapes disagree, or a target is out of range.
    """
    head = Head(lm_head_weight.detach())
    check_inputs(hidden, head, target_ids, torch.zeros_like(target_ids), 1)
    plan = make_plan(hidden, head, precision="float32", memory_bytes=memory_bytes)
    parts = []
    for start in range(0, len(hidden), plan.chunk_tokens):
        rows = slice(start, start + plan.chunk_tokens)
        h, targets = hidden[rows].detach().to(plan.dtype), target_ids[rows]
        with exact_products(), torch.autocast(hidden.device.type, enabled=False):
            sums = softmax_sums(h, targets, head, plan)
            target_rows = head.weight[targets].to(plan.dtype)
            gradients = sums.complement[:, None] * (sums.others - target_rows)
            log_probs = -torch.nn.functional.softplus(sums.log_odds)  # ln p_y = -ln(1 + (1 - p_y) / p_y)
            parts.append(HeadPass(log_probs, gradients, (h * target_rows).sum(-1) - log_probs, sums.complement))
    if not parts:
        nothing = hidden.detach().to(plan.dtype)
        return HeadPass(nothing[:, 0], nothing, nothing[:, 0], nothing[:, 0])
    return HeadPass(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


@torch.no_grad()
def response_means(
    found: HeadPass,
    hidden: Float[Tensor, "tokens hidden"],
    response_index: Int[Tensor, " tokens"],
    scored: Int[Tensor, " scored"],
    *,
    num_responses: int,
) -> Float32[Tensor, "responses hidden"]:
    """Mean gradient-activation vector of each response from the gradients of the training step.

    Args:
        found: From `head_pass`.
        hidden: As given to it.
        response_index: Which response a token belongs to.
        scored: Positions of the tokens within the scored span.
        num_responses: Rows of the result.

    Returns:
        What `gradient_activation_means` gives for the scored tokens, to float32 accuracy.
    """
    u = found.gradients[scored].double() * hidden[scored].detach()
    sums = torch.zeros(num_responses, hidden.shape[1], dtype=torch.float64, device=hidden.device)
    sums.index_add_(0, response_index[scored], u)
    counts = torch.bincount(response_index[scored], minlength=num_responses)
    return (sums / counts.clamp(min=1)[:, None]).float()


def head_backward(
    found: HeadPass,
    hidden: Float[Tensor, "tokens hidden"],
    lm_head_weight: Float[Tensor, "vocab hidden"],
    target_ids: Int[Tensor, " tokens"],
    response_index: Int[Tensor, " tokens"],
    factors: Float[Tensor, " responses"],
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> None:
    """Backward pass of `sum_r c_r sum_{t in r} -log p(y_t)` through head and backbone; adds to their gradients.

    The head's own gradient, `sum_t c_r (p_t - e) h_t^T`, takes the logits once more, tile by tile. A head that is tied
    to the embeddings gets both parts.

    Args:
        found: From `head_pass`, of the same hidden states and the same weights.
        hidden: With the graph of the backbone behind it.
        lm_head_weight: W; its `grad` is added to where it requires one.
        target_ids: Token ids.
        response_index: Which response a token belongs to.
        factors: c_r: the advantage times the loss's weight of a token of r. For the `grpo` loss of R responses,
            `A_r / (R n_r)`.
        memory_bytes: Most memory to use beside arguments and gradients.

    Raises:
        ValueError: `hidden` has no graph, or a response has no factor.
    """
    if not hidden.requires_grad:
        raise ValueError("hidden has no graph to go backward through. Was the forward pass made under no_grad?")
    check_range("response_index", response_index, len(factors), "Is there a factor for each response?")
    scale = factors.to(found.gradients)[response_index]
    if lm_head_weight.requires_grad:
        _add_head_gradient(found, hidden.detach(), lm_head_weight, target_ids, scale, memory_bytes)
    torch.autograd.backward(hidden, (scale[:, None] * found.gradients).to(hidden.dtype))


@torch.no_grad()
def _add_head_gradient(
    found: HeadPass, hidden: Tensor, weight: Tensor, targets: Tensor, scale: Tensor, memory_bytes: int
) -> None:
    head = Head(weight.detach())
    plan = make_plan(hidden, head, precision="float32", memory_bytes=memory_bytes)
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    for start in range(0, len(hidden), plan.chunk_tokens):
        rows = slice(start, start + plan.chunk_tokens)
        h, ids, factor = hidden[rows].to(plan.dtype), targets[rows], scale[rows]
        with exact_products(), torch.autocast(hidden.device.type, enabled=False):
            for first, tile, _ in tiles(head, plan):
                errors = torch.addmm(-found.log_normalisers[rows, None], h, tile.T).exp_()  # p_t
                inside = (ids >= first) & (ids < first + len(tile))
                errors[inside, ids[inside] - first] = -found.complements[rows][inside]  # p_y - 1, without rounding
                weight.grad[first : first + len(tile)] += (errors.mul_(factor[:, None]).T @ h).to(weight.dtype)
