"""Find the two parts of a causal language model that GAR needs: its backbone and its LM head.

`find_parts` compares the closed form's logits with the model's own on a few tokens. It rejects a model if its
head transforms logits in a way that the closed form does not cover.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from gar.errors import ModelError
from gar.models.rope import RopeLengths

_PROBE_TOKENS = 4

_PROBE_LOGIT = 100.0
"""Large enough for a soft-cap to have an effect. The near-zero logits of fresh weights would hide it."""


@dataclass(frozen=True, kw_only=True)
class ModelParts:
    """A causal language model taken apart.

    Attributes:
        backbone: The model up to the LM head's input. Its output has `last_hidden_state` after the final norm.
        head: The LM head. Its tensors are read at each access, since a wrapper may replace them.
        logit_scale: Factor of the logits.
        logit_softcap: `cap * tanh(z / cap)`, or None.
    """

    backbone: nn.Module
    head: Any
    logit_scale: float
    logit_softcap: float | None

    @property
    def weight(self) -> Tensor:
        """The LM head's weight, [vocab, hidden]. If ranks hold shards of it, all of them must read it together."""
        return _whole(self.head.weight)

    @property
    def bias(self) -> Tensor | None:
        """The LM head's bias, [vocab], or None. A collective as `weight` is."""
        return None if self.head.bias is None else _whole(self.head.bias)

    @property
    def width(self) -> int:
        """Width of a hidden state. Never a collective."""
        return getattr(self.head.weight, "ds_shape", self.head.weight.shape)[1]

    @property
    def device(self) -> torch.device:
        """Device of the head. Never a collective."""
        return self.head.weight.device

    @property
    def rope(self) -> RopeLengths:
        """Which padded lengths share the same rotary frequencies."""
        return RopeLengths.of(getattr(self.backbone, "config", None))

    def gathered(self) -> "ModelParts":
        """The same parts with the current head, whole on this rank, so that ranks may then do different work.

        A collective if ranks hold shards of the head. Each forward pass remains a collective.
        """
        return replace(self, head=SimpleNamespace(weight=self.weight, bias=self.bias))

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states according to the closed form."""
        weight, bias = self.weight, self.bias
        z = nn.functional.linear(hidden.to(weight.dtype), weight, bias) * self.logit_scale  # a float32 head on bfloat16
        return z if self.logit_softcap is None else self.logit_softcap * torch.tanh(z / self.logit_softcap)


def find_parts(model: Any) -> ModelParts:
    """Backbone, head and logit transformations of a transformers causal LM, with or without a PEFT adapter.

    The model may be sharded over ranks by `fully_shard` or ZeRO-3. Then all ranks call this together, and later make
    equally many forward passes with the result. A model emptied by `deepspeed.zero.Init` cannot run until DeepSpeed
    wraps it, so its logits are checked by the next call.

    Args:
        model: A `PreTrainedModel` with an LM head, or a `PeftModel` around one.

    Raises:
        ModelError: There is no head, it is not a plain linear layer (quantized, or an adapter sits on it), the adapter
            prepends virtual tokens, or the model's logits differ from the closed form's.
    """
    # 1. An adapter is left aside: its layers are in the base model, whose hidden states it changes.
    causal = model
    if hasattr(model, "get_base_model"):
        causal = model.get_base_model()
        if model.active_peft_config.is_prompt_learning:
            raise ModelError(
                f"the adapter is {model.active_peft_config.peft_type.value}, which puts virtual tokens before the "
                "prompt: hidden states of the base model are not the policy's. Use an adapter on its layers (LoRA).",
                code="prompt-adapter",
            )
    # 2. The head must be a plain linear layer: the closed form multiplies by its weight.
    name = type(causal).__name__
    head = causal.get_output_embeddings() if hasattr(causal, "get_output_embeddings") else None
    backbone = getattr(causal, "base_model", None)
    if head is None or backbone is None or backbone is causal:
        raise ModelError(
            f"{name} has no separate backbone and LM head. GAR needs a causal language model.", code="no-head"
        )
    kind = next(kind for kind in type(head).__mro__ if not issubclass(kind, FSDPModule))
    if kind.__module__.startswith("peft."):
        raise ModelError(
            f"the LM head of {name} carries an adapter. GAR's vectors go through the head's own weight: take "
            "'lm_head' out of the adapter's target_modules and modules_to_save.",
            code="adapted-head",
        )
    if kind is not nn.Linear or not head.weight.is_floating_point():
        raise ModelError(
            f"the LM head of {name} is a {kind.__name__} of {head.weight.dtype}, expected a torch.nn.Linear of "
            "a floating-point type. Is the model loaded in 4 or 8 bit? Keep the head out of quantization "
            "(llm_int8_skip_modules=['lm_head']).",
            code="quantized-head",
        )
    # 3. What a model does between head and logits is in its configuration, or the comparison finds it.
    config = causal.config.get_text_config()
    parts = ModelParts(
        backbone=cast(nn.Module, _ThroughModel(backbone, causal)) if is_sharded(causal) else backbone,
        head=head,
        logit_scale=_factor(config, "logit_scale") / _factor(config, "logits_scaling"),
        logit_softcap=getattr(config, "final_logit_softcapping", None),
    )
    if not _is_empty(causal):
        _check_logits(causal, parts, name)
    return parts


class _ThroughModel:
    """A backbone called through the whole model, where `fully_shard` gathers parameters outside of the layers."""

    def __init__(self, backbone: nn.Module, model: nn.Module):
        self._backbone = backbone
        self._model = model
        accepted = inspect.signature(model.forward).parameters
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backbone, name)

    def __call__(self, **inputs: Any) -> Any:
        outputs: list[Any] = []
        handle = self._backbone.register_forward_hook(lambda module, args, output: outputs.append(output))
        try:
            self._model(**inputs, **self._options)
        finally:
            handle.remove()
        return outputs[0]


def is_sharded(model: nn.Module) -> bool:
    """Whether `fully_shard` or ZeRO-3 has spread the parameters over ranks, so that a pass needs all of them."""
    return isinstance(model, FSDPModule) or any(
        isinstance(parameter, DTensor) or hasattr(parameter, "ds_id") for parameter in model.parameters()
    )


def _is_empty(model: nn.Module) -> bool:
    """Whether ZeRO-3 holds the parameters and does not yet gather them for a pass: then it has numbered no module."""
    return any(hasattr(parameter, "ds_id") for parameter in model.parameters()) and not hasattr(model, "ds_id")


def _whole(parameter: Tensor) -> Tensor:
    """A parameter gathered from the shards of all ranks, or itself if it is whole."""
    if isinstance(parameter, DTensor):
        return parameter.full_tensor().detach()
    if hasattr(parameter, "ds_id"):
        import deepspeed  # pyright: ignore[reportMissingImports]: it made the parameter

        with deepspeed.zero.GatheredParameters([parameter]):
            return parameter.detach().clone()
    return parameter


def _factor(config: Any, name: str) -> float:
    value = getattr(config, name, None)
    return float(value) if isinstance(value, int | float) else 1.0


def _rounding_tolerance(dtype: torch.dtype) -> float:
    """How far two orders of summation may differ, in units of the largest value: bfloat16 carries 8 bits."""
    return 2e-2 if dtype in (torch.bfloat16, torch.float16) else 1e-4


@torch.no_grad()
def _check_logits(causal: Any, parts: ModelParts, name: str) -> None:
    """Compare both logits on the same hidden states, which are scaled up between backbone and head."""
    hidden = []

    def stretch(module: nn.Module, args: Any, output: Any) -> Any:
        weight = parts.weight
        largest = nn.functional.linear(output.last_hidden_state.to(weight.dtype), weight).abs().max().clamp(min=1e-6)
        output.last_hidden_state = output.last_hidden_state * (_PROBE_LOGIT / largest)
        hidden.append(output.last_hidden_state)
        return output

    # Token ids that every vocabulary has, without the rounding of autocast.
    ids = torch.arange(_PROBE_TOKENS, device=parts.device)[None, :] % parts.weight.shape[0]
    handle = parts.backbone.register_forward_hook(stretch)
    try:
        with evaluation_mode(causal), _without_autocast(causal, parts.device):
            expected = getattr(causal(input_ids=ids, use_cache=False), "logits", None)
            computed = parts.logits(hidden[0]) if hidden else None
    finally:
        handle.remove()
    # A forward that was replaced gives no logits, or others.
    if computed is None:
        raise ModelError(
            f"{name} does not call its {type(parts.backbone).__name__}, where GAR reads hidden states.",
            code="unknown-head",
        )
    if not isinstance(expected, Tensor) or expected.shape != computed.shape:
        found = tuple(expected.shape) if isinstance(expected, Tensor) else f"a {type(expected).__name__}"
        raise ModelError(
            f"the forward of {name} returns {found} as logits, expected a tensor of shape {tuple(computed.shape)}. Has "
            "a library replaced it, as Unsloth does? Load the model with transformers alone.",
            code="no-logits",
        )
    if not bool(expected.isfinite().all()):
        raise ModelError(
            f"{name} gives logits that are not finite for token ids 0 to {_PROBE_TOKENS - 1}. Are there NaN weights "
            "in the checkpoint, or does its dtype overflow?",
            code="not-finite",
        )
    tolerance = max(_rounding_tolerance(parts.weight.dtype), _rounding_tolerance(expected.dtype))  # FSDP may round
    computed, expected = computed.float(), expected.float()
    difference = float((computed - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
    if difference > tolerance:
        raise ModelError(
            f"{name}: logits from its backbone and head differ from its own by {difference:.1e} of the largest "
            f"(at most {tolerance:.0e}). Its head transforms logits in a way that GAR does not know. Known are bias, "
            "logit_scale, logits_scaling and final_logit_softcapping.",
            code="unknown-head",
        )


@contextmanager
def _without_autocast(model: Any, device: torch.device) -> Iterator[None]:
    """Run a model in the precision of its weights, also once accelerate has wrapped its forward in autocast."""
    wrapped = vars(model).get("forward")
    original = vars(model).get("_original_forward")
    if original is not None:
        model.forward = original
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        if original is not None:
            model.forward = wrapped


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, and restore the mode of each module afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
