"""verl's FSDP engine, which on request also returns the mean gradient-activation vector of each sequence.

A forward hook of the LM head, before FSDP's own, computes the vectors in verl's pass for log-probabilities.
"""

# pyright: reportMissingImports=false
from typing import Any

import torch
from torch import Tensor, nn
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from gar.core import Head, Ranks, ScoredTokens, response_means
from gar.errors import ModelError
from gar.integrations.verl.exchange import (
    END,
    MEANS,
    REQUEST,
    START,
    check_logits,
    requested_signal,
    rows_of_rank,
    scored_rows,
)


class GarEngine(FSDPEngineWithLMHead):
    """verl's own engine, with the hook."""

    _micro_batch: Any = None
    """The current batch, if it asks for means."""
    _means: Tensor | None = None
    _raw_logits: Tensor | None = None

    def _build_module(self) -> Any:
        module = super()._build_module()
        head = module.get_output_embeddings()
        if type(head) is not nn.Linear:
            raise ModelError(
                f"the LM head of {type(module).__name__} is {type(head).__name__}, expected a torch.nn.Linear"
            )
        head.register_forward_hook(self._on_head, prepend=True)
        return module

    def _build_lora_module(self, module: Any) -> Any:
        head = module.get_output_embeddings()
        module = super()._build_lora_module(module)
        if module.get_output_embeddings() is not head:
            raise ModelError(
                "the LM head carries an adapter. GAR's vectors go through the head's own weight: take 'lm_head' out of "
                "actor_rollout_ref.model.target_modules."
            )
        return module

    def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
        """As verl's, with `MEANS` in the model's output if the batch asks for it."""
        asked = forward_only and tu.get_non_tensor_data(micro_batch, REQUEST, None) is not None
        self._micro_batch = micro_batch if asked else None
        try:
            return super().forward_step(micro_batch, loss_function=loss_function, forward_only=forward_only)
        finally:
            self._micro_batch = self._means = self._raw_logits = None

    def prepare_model_outputs(self, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any) -> Any:
        """As verl's, with `MEANS`."""
        if self._micro_batch is not None:
            check_logits(output.logits, self._raw_logits)
        model_output = super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        if self._micro_batch is not None:
            model_output[MEANS] = self._means
        return model_output

    def _on_head(self, head: Any, args: tuple[Tensor], raw_logits: Tensor) -> None:
        batch = self._micro_batch
        if batch is None or torch.is_grad_enabled():
            return
        hidden = args[0]
        packed = tu.get_non_tensor_data(batch, "use_remove_padding", True)
        rows = scored_rows(
            batch["input_ids"], batch["loss_mask"], batch[START], batch[END], width=None if packed else hidden.shape[1]
        )
        if self.use_ulysses_sp:
            rows = rows_of_rank(rows, rank=self.ulysses_device_mesh["sp"].get_local_rank(), length=hidden.shape[1])
        signal, temperature = requested_signal(tu.get_non_tensor_data(batch, REQUEST, None))
        positions, target_ids, response_index = (part.to(hidden.device) for part in rows)
        self._means = response_means(
            ScoredTokens(hidden.flatten(0, 1)[positions], target_ids, response_index, len(batch)),
            Head(head.weight, head.bias, temperature),
            signal,
            ranks=Ranks(context=self.ulysses_parallel_group),
        )
        self._raw_logits = raw_logits[:1, :1].clone()
