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
    adapter of any kind, or an adapter with parts of the model. A weight that TRL's reference model holds too, equal to
    the last bit, is not copied. The `GARTrainer` is made and has not trained.

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
        self._weights: dict[nn.Parameter, Tensor] = {}
        self.copied_bytes = 0
        """Memory of the copies."""
        kept: nn.Module | None = None if trainer.args.sync_ref_model else trainer.ref_model
        reference = dict(kept.named_parameters()) if kept is not None else {}
        for name, weight in self._model.named_parameters():
            if weight.requires_grad:
                self._weights[weight] = self._kept(weight, reference.get(name))

    def _kept(self, weight: Tensor, reference: Tensor | None) -> Tensor:
        if reference is not None and _is_same(weight, reference):
            return reference.detach()
        self.copied_bytes += weight.nbytes
        return weight.detach().clone()

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


def _is_same(weight: Tensor, reference: Tensor) -> bool:
    alike = (weight.shape, weight.dtype, weight.device) == (reference.shape, reference.dtype, reference.device)
    return alike and torch.equal(weight, reference)


def _place(values: dict[nn.Parameter, Tensor]) -> None:
    for weight, value in values.items():
        weight.data = value
    torch.clear_autocast_cache()  # it knows a weight by the parameter, not by its values
