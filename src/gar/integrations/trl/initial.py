"""The weights that a run starts from, whose vectors count under `signal.policy` initial."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import Tensor, nn

from gar.errors import ConfigError


class InitialWeights:
    """A copy of every weight that is trained, which can take its place for a while.

    The other weights stay as they are. So the policy is the initial one whatever is trained: the whole model, an
    adapter of any kind, or an adapter with parts of the model. The `GARTrainer` is made and has not trained.

    Raises:
        ConfigError: The model is sharded.
    """

    def __init__(self, trainer: Any):
        accelerator = trainer.accelerator
        if accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            raise ConfigError(
                "signal.policy initial needs whole weights on each rank, and does not go with FSDP or DeepSpeed. Set "
                "it to current, or train with DDP."
            )
        self._model: nn.Module = accelerator.unwrap_model(trainer.model)
        trained = (weight for weight in self._model.parameters() if weight.requires_grad)
        self._weights: dict[nn.Parameter, Tensor] = {weight: weight.detach().clone() for weight in trained}

    @contextmanager
    def on(self) -> Iterator[None]:
        """While open, passes of the model are those of the initial policy. Open it outside of autocast.

        Raises:
            ConfigError: Other weights are trained than when the trainer was made.
        """
        self._check_trained()
        trained = {weight: weight.data for weight in self._weights}
        try:
            _place(self._weights)
            yield
        finally:
            _place(trained)

    def _check_trained(self) -> None:
        there = {weight: name for name, weight in self._model.named_parameters()}
        new = [name for weight, name in there.items() if weight.requires_grad and weight not in self._weights]
        if new or not self._weights.keys() <= there.keys():
            raise ConfigError(
                "signal.policy initial copies what is trained when the trainer is made, and afterwards other weights "
                f"{f'are trained ({new[0]})' if new else 'took their place'}. Change the model before that."
            )


def _place(values: dict[nn.Parameter, Tensor]) -> None:
    for weight, value in values.items():
        weight.data = value
    torch.clear_autocast_cache()  # it knows a weight by the parameter, not by its values
