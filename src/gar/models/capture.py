"""Capture hidden states of forward passes that are made elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def capture_hidden(backbone: nn.Module, receive: Callable[[Tensor], None]) -> Iterator[None]:
    """Call `receive` with the hidden states, [batch, tokens, hidden], of the backbone's passes without gradients."""

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        if not torch.is_grad_enabled():
            receive(output.last_hidden_state)

    handle = backbone.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def capture_generation(backbone: nn.Module, *, most_bytes: int) -> Iterator["GenerationStates"]:
    """Keep the hidden states that `generate` computes for the tokens it samples: one column per decoding step.

    A sequence's state t is the last column of the pass that gave its token t, whatever the padding of its prompt.
    """
    states = GenerationStates(most_bytes)
    with capture_hidden(backbone, states.receive):
        yield states


class GenerationStates:
    """Hidden states of generated tokens, as long as they take no more than `most_bytes`."""

    def __init__(self, most_bytes: int):
        self._columns: list[Tensor] = []
        self._room = most_bytes

    def receive(self, hidden: Tensor) -> None:
        """Keep the last column of a forward pass."""
        self._room -= hidden[:, -1:].numel() * hidden.element_size()
        if self._room < 0:
            self._columns.clear()
        else:
            self._columns.append(hidden[:, -1:].clone())  # a view would keep the states of the prompt

    def stacked(self, num_rows: int, num_tokens: int) -> Tensor | None:
        """[rows, tokens, hidden], where column t predicts token t. None if they do not come from one `generate`."""
        shapes = {column.shape for column in self._columns}
        if len(self._columns) != num_tokens or len(shapes) != 1 or self._columns[0].shape[0] != num_rows:
            return None
        return torch.cat(self._columns, dim=1)


def has_dropout(model: nn.Module) -> bool:
    """Whether the model's hidden states in train mode may differ from those in eval mode.

    Some models apply dropout without a module, or add routing noise: any such rate in the configuration counts.
    """
    if any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules()):
        return True
    config = getattr(model, "config", None)
    rates = config.get_text_config().to_dict() if config is not None else {}
    noisy = [value for name, value in rates.items() if "drop" in name or "jitter" in name]
    return any(isinstance(value, int | float) and value > 0 for value in noisy)
