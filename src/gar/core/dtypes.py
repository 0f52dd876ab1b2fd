"""The dtype of results: the formulas work in float64, and hand back what they were given."""

import torch
from torch import Tensor


def as_given(result: Tensor, argument: Tensor) -> Tensor:
    """The result in the argument's dtype, or in `torch.get_default_dtype()` where that is an integer or bool.

    A result in an integer dtype would be cut to whole numbers: advantages of 0.58 and -1.73 would be 0 and -1.

    Example:
        >>> as_given(torch.tensor([0.5]).double(), torch.tensor([1]))
        tensor([0.5000])
    """
    return result.to(argument.dtype if argument.is_floating_point() else torch.get_default_dtype())
