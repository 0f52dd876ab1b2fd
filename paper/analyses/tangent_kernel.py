"""The output layer's tangent kernel, exact and without forming gradients: the effect of one sequence on another.

With errors `delta_t = dL_t / d(W h_t)` the gradient of a sequence's mean loss by the head is
`g = (1/n) sum_t delta_t h_t^T`, a [vocab, hidden] matrix. Its products need only the Gram matrices of the errors and of
the hidden states. Everything is float64.
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
        errors: p - e_y of each scored token, times the slope of the logits under a soft-cap.
        hidden: Inputs of the head at these tokens.
        other_errors: The same for the other sequence.
        other_hidden: The same for the other sequence.

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
    """Result of `kernel_decomposition`, float64 scalars.

    The bounds are made of `k`, the largest `|d_t - mean d|` of each sequence, `B_d`, the larger `|mean d|` of the two,
    and `B_h`, the size of the hidden states.

    Attributes:
        kernel: `<g, g'>`.
        mean_field: `(mean d . mean d')(mean h . mean h')`.
        remainder: The first minus the second.
        printed_bound: `B_h^2 k k' + B_d (k + k') B_h`, the paper's eq. 8 with constant 1 and `B_h` the larger
            `|mean h|`. It can be smaller than the remainder.
        printed_bound_of_largest: The same with `B_h` the largest `|h_t|`. It, too, can be smaller.
        bound: `B_h^2 (k k' + B_d (k + k'))` with `B_h` the largest `|h_t|`, which always holds: eq. 8 with the factor
            `B_h` that its second term lacks. Ours.
    """

    kernel: Tensor
    mean_field: Tensor
    remainder: Tensor
    printed_bound: Tensor
    printed_bound_of_largest: Tensor
    bound: Tensor


def kernel_decomposition(
    errors: Float[Tensor, "tokens vocab"],
    hidden: Float[Tensor, "tokens hidden"],
    other_errors: Float[Tensor, "others vocab"],
    other_hidden: Float[Tensor, "others hidden"],
) -> KernelParts:
    """The kernel as the product of mean errors and mean hidden states, the remainder, and bounds of the remainder.

    Args:
        errors: As in `output_layer_kernel`.
        hidden: As in `output_layer_kernel`.
        other_errors: As in `output_layer_kernel`.
        other_hidden: As in `output_layer_kernel`.

    Raises:
        ValueError: As `output_layer_kernel`.

    References:
        GAR, arXiv 2609.03342, theorem 2, eq. 8. The last bound is ours. As `mean_t,s (d . d')(h_t . h'_s)` over mean
        errors is the mean field, the remainder is the sum of three means, each with a deviation of an error:
        `(d_t - d) . d'`, `d . (d'_s - d')` and `(d_t - d) . (d'_s - d')`, times `h_t . h'_s`.
    """
    kernel = output_layer_kernel(errors, hidden, other_errors, other_hidden)
    sides = [(errors.double(), hidden.double()), (other_errors.double(), other_hidden.double())]
    (d, h), (d_other, h_other) = [(errors.mean(0), hidden.mean(0)) for errors, hidden in sides]
    mean_field = (d @ d_other) * (h @ h_other)
    k, k_other = [(errors - errors.mean(0)).norm(dim=-1).max() for errors, _ in sides]
    error_size = torch.maximum(d.norm(), d_other.norm())
    mean_size = torch.maximum(h.norm(), h_other.norm())
    largest = torch.maximum(*[hidden.norm(dim=-1).max() for _, hidden in sides])
    quadratic, linear = k * k_other, error_size * (k + k_other)
    return KernelParts(
        kernel=kernel,
        mean_field=mean_field,
        remainder=kernel - mean_field,
        printed_bound=mean_size**2 * quadratic + mean_size * linear,
        printed_bound_of_largest=largest**2 * quadratic + largest * linear,
        bound=largest**2 * (quadratic + linear),
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
        logits: Logits of the measured sequence before the step.
        target_ids: Its tokens.
        other_hidden: Its hidden states.
        errors: p - e_y of the sequence that the step trains on.
        hidden: Its hidden states.
        step_size: eta. 0 gives the loss as it is.
    """
    changes = (other_hidden.double() @ hidden.double().T) @ errors.double() / len(errors)
    after = logits.double() - step_size * changes
    return torch.nn.functional.cross_entropy(after, target_ids)
