"""The policy as it was before training, whose vectors count under `signal.policy` initial."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import Tensor
from trl.trainer.utils import use_adapter

from gar.errors import ConfigError
from gar.models.adapters import is_adapted
from gar.models.capture import has_dropout
from gar.models.families import ModelParts, evaluation_mode, find_parts, rounding_tolerance
from gar.records.files import canonical_hash
from gar.scoring.anchor_cache import cache_name
from gar.scoring.identity import weights_hash
from gar.scoring.judge import frozen_copy
from gar.settings import SignalSettings

_PROBE_TOKENS = 8
_INDIFFERENT = ("_name_or_path", "transformers_version", "use_cache")


class InitialPolicy:
    """Where a run finds its initial policy: a frozen copy, TRL's reference model, or the model beneath the adapter.

    Make it of the loaded model, before TRL changes anything; then `find` it in the trainer, before the first step. A
    resumed run begins with the same model, so it finds the same policy.

    Args:
        model: The policy that the trainer is given.
        args: A `trl.GRPOConfig`. With a KL term TRL keeps a reference model of its own.
        new_adapter: Whether the trainer puts a new adapter on it.

    Raises:
        ConfigError: `model` is a name, or the reference model moves.
    """

    def __init__(self, model: Any, args: Any, *, new_adapter: bool):
        if isinstance(model, str):
            raise ConfigError(f"signal.policy is initial: give the loaded model, got '{model}'")
        if args.sync_ref_model:
            raise ConfigError(
                "trl.sync_ref_model moves the reference model, and signal.policy initial wants vectors of the policy "
                "before training. Set one of the two back."
            )
        self._name = canonical_hash([weights_hash(model), _meaning(model), args.bf16, args.fp16])
        copies = args.beta == 0 and not new_adapter and not is_adapted(model)
        self._copy = frozen_copy(model) if copies else None
        self._trainer: Any = None
        self.parts: ModelParts

    @property
    def copied_bytes(self) -> int:
        """Memory of the frozen copy; 0 where there is none."""
        return sum(p.numel() * p.element_size() for p in self._copy.parameters()) if self._copy is not None else 0

    def find(self, trainer: Any, current: ModelParts) -> None:
        """Find it in a trainer that is made and has not trained.

        Raises:
            ConfigError: The model is sharded; or what should be the initial policy gives other hidden states than the
                policy does now: the adapter was trained before, or TRL loaded its reference from another place.
        """
        accelerator = trainer.accelerator
        if accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            raise ConfigError(
                "signal.policy initial keeps a whole model on each rank, and does not go with FSDP or DeepSpeed. Set "
                "it to current, or train with DDP."
            )
        self._trainer = trainer
        if self._copy is not None:
            self.parts = find_parts(self._copy.to(accelerator.device))
        elif trainer.ref_model is not None:
            self.parts = find_parts(accelerator.unwrap_model(trainer.ref_model))
        else:
            self.parts = current
        with self.on():
            before = _probe(self.parts)
        now = _probe(current)
        difference = float((before - now).abs().max() / now.abs().max())
        if not difference <= rounding_tolerance(now.dtype):  # DoRA rounds
            raise ConfigError(f"signal.policy is initial, but {self._source()} (its hidden states differ).")

    def _source(self) -> str:
        if self._trainer.ref_model is not None:
            return (
                "the reference model that TRL loads by the name of the policy is another one than the policy. Was the "
                "loaded model changed? Set signal.policy to current, or trl.beta to 0"
            )
        return (
            "the adapter has been trained before, and the model beneath it is not the policy that training begins "
            "with. Set trl.beta above 0, so that TRL keeps a copy of a loaded adapter, or merge it first"
        )

    def on(self) -> AbstractContextManager[None]:
        """While open, passes of `parts` are those of the initial policy."""
        if not self._is_beneath_adapter():
            return nullcontext()
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        return use_adapter(model, "ref" if "ref" in model.peft_config else None)

    def is_run_by(self, model: Any) -> bool:
        """Whether a pass of `model` that TRL makes now, its reference pass, has the initial policy's hidden states."""
        if self._copy is not None or has_dropout(self.parts.backbone):
            return False
        if not self._is_beneath_adapter():
            return model is self._trainer.ref_model
        adapted = self._trainer.accelerator.unwrap_model(self._trainer.model)
        if "ref" in adapted.peft_config:
            return adapted.active_adapter == "ref"
        return any(getattr(module, "disable_adapters", False) is True for module in adapted.modules())

    def cache_name(self, signal: SignalSettings) -> str:
        """Under which name its anchors' vectors are kept."""
        return cache_name(self._name, signal)

    def _is_beneath_adapter(self) -> bool:
        return self._copy is None and self._trainer.ref_model is None


def _meaning(model: Any) -> dict[str, str]:
    """What weights mean wherever the model lies, for example how positions are rotated and adapters are scaled."""
    values = {name: value for name, value in model.config.to_dict().items() if name not in _INDIFFERENT}
    if is_adapted(model):
        from peft.tuners.lora import LoraLayer

        values |= {name: layer.scaling for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}
    return {name: repr(value) for name, value in values.items()}  # JSON has no infinity, and some settings are


@torch.no_grad()
def _probe(parts: ModelParts) -> Tensor:
    """Hidden states of a few tokens."""
    ids = torch.arange(_PROBE_TOKENS, device=parts.device)[None, :] % len(parts.weight)
    with evaluation_mode(parts.backbone):
        return parts.backbone(input_ids=ids, use_cache=False).last_hidden_state
