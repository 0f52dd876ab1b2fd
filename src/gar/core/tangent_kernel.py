"""The output layer's tangent kernel, exact and without its gradients: what training on one sequence does to another.

With errors `delta_t = dL_t / d(W h_t)` the gradient of a sequence's mean loss by the head is
`g = (1/n) sum_t delta_t h_t^T`, a [vocab, hidden] matrix. Its products need only the Gram matrices of the errors and of
the hidden states. All of it is float64.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor


def output_layer_kernel(
    errors: Float[Tensor, "tokens vocab"],
    hidden: Float[Tensor, "tokens hidden"],
    other_errors: Float[Tensor, "others vocab"],
    other_hidden: Float[Tensor, "others hidden"],
) -> Float64[Tensor, ""]:
    """Inner product of two sequences' gradients by the head: `<g, g'> = mean over t, s of (d_t . d'_s)(h_t . h'_s)`.

    To first order, a step of size eta down g lowers the loss of the other sequence by `eta <g, g'>`.

    Args:
        errors: p - e_y of each scored token, times the slope of the logits where they are bent.
        hidden: Inputs of the head at these tokens.
        other_errors: Of the other sequence.
        other_hidden: Of the other sequence.

    Raises:
        ValueError: A sequence has no token.

    Example:
        >>> one = torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0, 0.0]])
        >>> output_layer_kernel(*one, *one)  # |delta|^2 |h|^2
        tensor(8., dtype=torch.float64)
    """
    if not (len(errors) and len(other_errors)):
        raise ValueError(f"both sequences need a token, got {len(errors)} and {len(other_errors)}")
    return ((errors.double() @ other_errors.double().T) * (hidden.double() @ other_hidden.double().T)).mean()


class KernelParts(NamedTuple):
    """What `kernel_decomposition` returns, float64 scalars.

    Attributes:
        kernel: `<g, g'>`.
        mean_field: `(mean d . mean d')(mean h . mean h')`.
        remainder: The first minus the second.
        printed_bound: `kappa B_h B_delta`, of the paper with constant 1: kappa the largest deviation of the first
            sequence's errors from their mean, B_h the largest hidden state of both, B_delta the norm of the other's
            mean error. It can be smaller than the remainder.
        bound: `|m| c' + c |m'| + c c'`, which always holds: |m| = |mean d| |mean h| of each sequence, and
            `c^2 = mean |d_t - mean d|^2 * mean |h_t - mean h|^2`. Ours.
    """

    kernel: Tensor
    mean_field: Tensor
    remainder: Tensor
    printed_bound: Tensor
    bound: Tensor


def kernel_decomposition(
    errors: Float[Tensor, "tokens vocab"],
    hidden: Float[Tensor, "tokens hidden"],
    other_errors: Float[Tensor, "others vocab"],
    other_hidden: Float[Tensor, "others hidden"],
) -> KernelParts:
    """The kernel as the product of mean errors and mean hidden states, what is left, and two bounds of that.

    Args:
        errors: As for `output_layer_kernel`, with the arguments not named here.
        hidden: Of the first sequence.
        other_errors: Of the other sequence.
        other_hidden: Of the other sequence.

    Raises:
        ValueError: As `output_layer_kernel`.

    References:
        GAR, arXiv 2609.03342, theorem 2; the second bound is ours.
    """
    kernel = output_layer_kernel(errors, hidden, other_errors, other_hidden)
    sides = [(errors.double(), hidden.double()), (other_errors.double(), other_hidden.double())]
    (d, h), (d_other, h_other) = [(errors.mean(0), hidden.mean(0)) for errors, hidden in sides]
    mean_field = (d @ d_other) * (h @ h_other)
    spreads = [
        ((errors - errors.mean(0)).square().sum(-1).mean() * (hidden - hidden.mean(0)).square().sum(-1).mean()).sqrt()
        for errors, hidden in sides
    ]
    sizes = [d.norm() * h.norm(), d_other.norm() * h_other.norm()]
    kappa = (sides[0][0] - d).norm(dim=-1).max()
    largest = torch.maximum(sides[0][1].norm(dim=-1).max(), sides[1][1].norm(dim=-1).max())
    return KernelParts(
        kernel=kernel,
        mean_field=mean_field,
        remainder=kernel - mean_field,
        printed_bound=kappa * largest * d_other.norm(),
        bound=sizes[0] * spreads[1] + spreads[0] * sizes[1] + spreads[0] * spreads[1],
    )


def loss_after_head_step(
    logits: Float[Tensor, "others vocab"],
    target_ids: Tensor,
    other_hidden: Float[Tensor, "others hidden"],
    errors: Float[Tensor, "tokens vocab"],
    hidden: Float[Tensor, "tokens hidden"],
    step_size: float,
) -> Float64[Tensor, ""]:
    """Mean cross-entropy of a sequence after the head took one gradient step on another: exact, for plain logits.

    `W - eta g` changes the logits at s by `-eta mean_t (h_t . h_s) delta_t`.

    Args:
        logits: Of the sequence before the step.
        target_ids: Its tokens.
        other_hidden: Its hidden states.
        errors: Of the sequence that is trained on.
        hidden: Of the sequence that is trained on.
        step_size: eta; 0 gives the loss as it is.
    """
    changes = (other_hidden.double() @ hidden.double().T) @ errors.double() / len(errors)
    after = logits.double() - step_size * changes
    return torch.nn.functional.cross_entropy(after, target_ids)
