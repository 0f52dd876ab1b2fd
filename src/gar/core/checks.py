"""Rules that the formulas share: shapes agree, values are finite, and a result has its argument's dtype."""

from collections.abc import Sequence

import torch
from torch import Tensor


def check_shapes(shape: Sequence[int], **tensors: Tensor) -> None:
    """Check that each tensor has the shape. Keywords are the names of the arguments.

    Raises:
        ValueError: Names the first tensor with another shape, its shape and the expected one.
    """
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(tensor.shape)}")


def check_finite(name: str, values: Tensor, counted: Tensor | None = None, *, hint: str = "") -> None:
    """Reject NaN and infinity among the counted values, shape [responses].

    Raises:
        ValueError: Names the first such value, its response, and the hint.
    """
    bad = ~values.isfinite() if counted is None else ~values.isfinite() & counted
    if bool(bad.any()):
        response = int(bad.nonzero()[0])
        raise ValueError(f"{name} must be finite, got {values[response].item()} at response {response}{hint}")


def as_given(result: Tensor, argument: Tensor) -> Tensor:
    """The result in the argument's dtype, or in `torch.get_default_dtype()` where that is an integer or bool.

    A result in an integer dtype would be cut to whole numbers: advantages of 0.58 and -1.73 would be 0 and -1.

    Example:
        >>> as_given(torch.tensor([0.5]).double(), torch.tensor([1]))
        tensor([0.5000])
    """
    return result.to(argument.dtype if argument.is_floating_point() else torch.get_default_dtype())
