"""A model as it is now, beside one that trains."""

import copy
from typing import Any


def frozen_copy(model: Any) -> Any:
    """A copy of a model in evaluation mode, without gradients of parameters.

    Make it before the model is wrapped or sharded, and before the first step.
    """
    return copy.deepcopy(model).eval().requires_grad_(False)
