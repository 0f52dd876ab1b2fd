"""Sources of hidden states: sampling, TRL's pass for old log-probabilities, or else a pass of our own."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import Tensor, nn
from transformers.generation import GenerationMode

from gar.errors import ConfigError
from gar.integrations.trl.arguments import generation_passes
from gar.models.capture import GenerationStates, capture_generation, has_dropout
from gar.models.families import ModelParts, find_parts
from gar.models.rope import has_rope

MOST_CAPTURED_BYTES = 2**30
"""Limit of hidden states kept from TRL's passes. Beyond it, a pass over the scored responses runs instead."""


_ONE_STATE_A_TOKEN = (GenerationMode.SAMPLE, GenerationMode.GREEDY_SEARCH)
"""Beams are reordered, and the last state of assisted decoding may be a rejected candidate's."""


class StateSource:
    """Finds a trainer's policy (with `initial`, the one before training), and makes its forward passes."""

    def __init__(self, trainer: Any, *, initial: bool):
        self._trainer = trainer
        self._is_sharded = trainer.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED)
        self._was_found_sharded = False
        self.policy = self._find_policy()
        """The parts of the policy that is trained."""
        self._initial = InitialWeights(trainer) if initial else None

    def _find_policy(self) -> ModelParts:
        return find_parts(self._trainer.accelerator.unwrap_model(self._trainer.model))

    def refresh(self) -> None:
        """Find the policy again after training has begun, since accelerate may have sharded it."""
        if self._is_sharded and not self._was_found_sharded:
            self.policy = self._find_policy()
            self._was_found_sharded = True

    @contextmanager
    def own_passes(self) -> Iterator[ModelParts]:
        """The same policy for passes of our own, with the head gathered."""
        switched = nullcontext() if self._initial is None else self._initial.on()
        with switched, self._trainer.accelerator.autocast():  # as TRL's own passes, whose states may be captured
            yield self.policy.gathered()

    def while_sampling(self, *, wanted: bool) -> AbstractContextManager[GenerationStates]:
        """Keep the states of sampling if they are wanted and count."""
        room = MOST_CAPTURED_BYTES if wanted and self.come_from_sampling() else 0
        return capture_generation(self.policy.backbone, most_bytes=room)

    def come_from_sampling(self) -> bool:
        """Whether sampling computes the states that count, and no later pass of TRL's does."""
        trainer = self._trainer
        return (
            self._initial is None
            and not (trainer.use_vllm or trainer.use_transformers_continuous_batching or self._computes_old_logps())
            and trainer.generation_config.cache_implementation != "quantized"  # its states are approximate
            and trainer.generation_config.get_generation_mode() in _ONE_STATE_A_TOKEN
            and not self._is_sharded
            and not has_dropout(self.policy.backbone)
        )

    def come_from_pass(self, model: Any) -> bool:
        """Whether a pass of `model` that TRL makes over the rollouts computes the states that count.

        TRL pads prompts on the left and gives no positions.
        """
        is_policy = self._initial is None and model is self._trainer.model
        return is_policy and self._computes_old_logps() and has_rope(self.policy.backbone.config)

    def _computes_old_logps(self) -> bool:
        """TRL's own condition for a log-prob pass over the rollouts. Then its hidden states are free."""
        trainer = self._trainer
        with_vllm = trainer.use_vllm and trainer.vllm_importance_sampling_correction
        runs = trainer.args.gradient_accumulation_steps % generation_passes(trainer.args) != 0 or with_vllm
        return runs and not has_dropout(self.policy.backbone)


class InitialWeights:
    """A copy of every trained weight, made before training, that can replace it temporarily."""

    def __init__(self, trainer: Any):
        accelerator = trainer.accelerator
        if accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            raise ConfigError(
                "signal.policy initial needs whole weights on each rank, and does not go with FSDP or DeepSpeed. Set "
                "it to current, or train with DDP.",
                code="sharded",
            )
        self._model: nn.Module = accelerator.unwrap_model(trainer.model)
        trained = (weight for weight in self._model.parameters() if weight.requires_grad)
        self._weights: dict[nn.Parameter, Tensor] = {weight: weight.detach().clone() for weight in trained}

    @contextmanager
    def on(self) -> Iterator[None]:
        """While open, the model computes as the initial policy. Open it outside of autocast."""
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
                f"{f'are trained ({new[0]})' if new else 'took their place'}. Change the model before that.",
                code="trained-weights",
            )


def _place(values: dict[nn.Parameter, Tensor]) -> None:
    for weight, value in values.items():
        weight.data = value
    torch.clear_autocast_cache()  # it is keyed by parameters, not by values
