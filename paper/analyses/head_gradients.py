"""Exact inner products of the LM head's gradients for a response and its anchor: the subject of the paper's theory.

They come from Gram matrices of errors and hidden states (`tangent_kernel`), in float64. The [vocab, hidden]
matrices are never formed.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gar import TokenSequence
from gar.core import gradient_activation_means, unit_rows
from gar.models import ModelParts, evaluation_mode
from paper.analyses.tangent_kernel import kernel_decomposition, loss_after_head_step, output_layer_kernel

STEP_SIZE = 1e-3
"""Length of a gradient step of the head."""
SCALE = 1e-4
"""Step of central differences in the relative size of the hidden states."""


@dataclass(frozen=True, kw_only=True)
class TokenGradients:
    """The scored tokens of a sequence, all float64.

    Attributes:
        hidden: [tokens, hidden].
        logits: [tokens, vocab].
        errors: Derivative of each token's loss by `W h`, [tokens, vocab].
        target_ids: [tokens].
    """

    hidden: Tensor
    logits: Tensor
    errors: Tensor
    target_ids: Tensor


@torch.no_grad()
def token_gradients(parts: ModelParts, sequence: TokenSequence) -> TokenGradients:
    """Hidden states, logits and errors of a sequence's scored tokens, from one forward pass."""
    ids = [*sequence.context_ids, *sequence.ids[: sequence.positions[-1]]]
    with evaluation_mode(parts.backbone):
        states = parts.backbone(input_ids=torch.tensor([ids], device=parts.device), use_cache=False).last_hidden_state
    columns = [len(sequence.context_ids) + position - 1 for position in sequence.positions]
    hidden = states[0, columns].double()
    logits = _logits(parts, hidden)
    targets = torch.tensor(sequence.scored_ids, device=hidden.device)
    errors = torch.softmax(logits, -1)
    errors[torch.arange(len(targets)), targets] -= 1
    slope = parts.logit_scale
    if parts.logit_softcap is not None:
        slope = slope * (1 - (logits / parts.logit_softcap).square())
    return TokenGradients(hidden=hidden, logits=logits, errors=errors * slope, target_ids=targets)


def _logits(parts: ModelParts, hidden: Tensor) -> Tensor:
    bias = None if parts.bias is None else parts.bias.double()
    logits = torch.nn.functional.linear(hidden, parts.weight.double(), bias) * parts.logit_scale
    return logits if parts.logit_softcap is None else parts.logit_softcap * torch.tanh(logits / parts.logit_softcap)


def pair_measures(
    parts: ModelParts, response: TokenGradients, anchor: TokenGradients, *, plain_logits: bool
) -> dict[str, float]:
    """The quantities in the paper's statements, by name. `anchor_loss_decrease` is NaN without `plain_logits`."""
    vectors = unit_rows(torch.stack([_mean_vector(parts, tokens) for tokens in (response, anchor)])).double()
    split = kernel_decomposition(response.errors, response.hidden, anchor.errors, anchor.hidden)
    squares = [output_layer_kernel(t.errors, t.hidden, t.errors, t.hidden) for t in (response, anchor)]
    step = STEP_SIZE / float(squares[0].sqrt().clamp(min=1e-30))
    before, after = (
        loss_after_head_step(anchor.logits, anchor.target_ids, anchor.hidden, response.errors, response.hidden, size)
        for size in (0.0, step)
    )
    return {
        "alignment": float(vectors[0] @ vectors[1]),
        "normalized_kernel": float(split.kernel / (squares[0] * squares[1]).sqrt()),
        "kernel": float(split.kernel),
        "mean_field": float(split.mean_field),
        "remainder": float(split.remainder),
        "printed_bound": float(split.printed_bound),
        "printed_bound_of_largest": float(split.printed_bound_of_largest),
        "proven_bound": float(split.bound),
        "orthogonality_bound": 2 * vectors.shape[1] * separating_threshold(vectors),
        "anchor_loss_decrease": float(before - after) / STEP_SIZE if plain_logits else np.nan,
    }


def separating_threshold(vectors: Tensor) -> float:
    """Smallest eps at which the effective supports of two vectors, `{j : |s_j| > eps max |s|}`, are disjoint.

    Args:
        vectors: [2, dimensions]. The support of a zero vector is empty.
    """
    sizes = vectors.abs()
    relative = sizes / sizes.amax(1, keepdim=True).clamp(min=1e-30)
    return float(relative.amin(0).max())


def scale_error(parts: ModelParts, tokens: TokenGradients) -> float:
    """Relative difference of sum_j s_j and the slope of the loss in the size of the hidden states."""
    losses = [
        torch.nn.functional.cross_entropy(_logits(parts, (1 + eta) * tokens.hidden), tokens.target_ids)
        for eta in (SCALE, -SCALE)
    ]
    slope = float(losses[0] - losses[1]) / (2 * SCALE)
    total = float(_mean_vector(parts, tokens).double().sum())
    return abs(total - slope) / max(abs(slope), 1e-3)


def _mean_vector(parts: ModelParts, tokens: TokenGradients) -> Tensor:
    return gradient_activation_means(
        tokens.hidden, parts.weight.double(), tokens.target_ids, torch.zeros_like(tokens.target_ids), num_responses=1,
        bias=None if parts.bias is None else parts.bias.double(), logit_scale=parts.logit_scale,
        logit_softcap=parts.logit_softcap,
    )[0]  # fmt: skip
