"""verl's Megatron engine, which on request also returns the mean gradient-activation vector of each sequence.

The last pipeline stage captures the head's input in verl's pass for log-probabilities.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from collections import deque
from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear
from torch import Tensor
from verl.models.mcore.util import preprocess_thd_engine
from verl.utils import tensordict_utils as tu
from verl.utils.megatron_utils import unwrap_model
from verl.workers.engine.megatron.transformer_impl import MegatronEngineWithLMHead

from gar.errors import ModelError
from gar.integrations.megatron import HeadInputs, check_head, head_means, watch_head
from gar.integrations.verl.exchange import END, MEANS, REQUEST, START, check_logits, requested_signal, scored_rows


class GarMegatronEngine(MegatronEngineWithLMHead):
    """verl's own engine, which captures the head's input if a batch asks for means."""

    _seen: deque[HeadInputs] | None = None
    """The head's input in the current micro-batch, if it asks for means."""
    _means: Tensor | None = None
    _raw_logits: Tensor | None = None

    def initialize(self) -> None:
        """As verl's. Rejects jobs without readable vectors."""
        super().initialize()
        for chunk in self.module:
            model = unwrap_model(chunk)
            if not model.post_process:
                continue
            check_head([model])
            if type(model.output_layer) is not ColumnParallelLinear:
                raise ModelError(
                    f"the LM head of {type(model).__name__} is {type(model.output_layer).__name__}, expected "
                    "Megatron's ColumnParallelLinear. Does it carry an adapter? Then take 'output_layer' out of "
                    "actor_rollout_ref.model.lora.target_modules.",
                    code="unknown-head",
                )
            model.output_layer.register_forward_hook(self._note_logits)

    def _note_logits(self, head: Any, args: Any, output: tuple[Tensor, Any]) -> None:
        if self._seen is not None:
            self._raw_logits = output[0][:1, :1].clone()

    def forward_step(
        self, batch_iter: Any, model: Any, logits_processor_func: Any, postprocess_micro_batch_func: Any
    ) -> Any:
        """As verl's. If the batch asks for means, `MEANS` is formed between the head and the log-probabilities."""
        batch = next(batch_iter)
        asked = not torch.is_grad_enabled() and tu.get_non_tensor_data(batch, REQUEST, None) is not None
        self._seen, self._means, self._raw_logits = deque(maxlen=1) if asked else None, None, None
        stop = watch_head([model], self._seen) if self._seen is not None else lambda: None
        try:
            return super().forward_step(iter([batch]), model, logits_processor_func, postprocess_micro_batch_func)
        finally:
            stop()

    def _lm_head_logits_processor(self, logits: Any, label: Any, temperature: Any, **options: Any) -> Any:
        if self._seen is not None:
            check_logits(logits, self._raw_logits)
            self._means = self._means_of(options["batch"], self._seen.pop(), label[0])
        return super()._lm_head_logits_processor(logits, label, temperature, **options)

    def prepare_model_outputs(self, output: Any, data: Any) -> Any:
        """As verl's, with `MEANS`."""
        model_output = super().prepare_model_outputs(output, data)
        if self._means is not None:
            model_output[MEANS] = self._means
        return model_output

    def _means_of(self, batch: Any, inputs: HeadInputs, labels: Tensor) -> Tensor:
        """Means of a micro-batch. `labels` are verl's targets of the rows of this context rank."""
        ids = batch["input_ids"]
        scored = scored_rows(ids, batch["loss_mask"], batch[START], batch[END], width=None)
        owners, targets = torch.zeros_like(ids.values()), torch.zeros_like(ids.values())
        owners[scored.positions] = scored.response_index + 1
        targets[scored.positions] = scored.target_ids
        owners, targets = self._packed(owners, ids), self._packed(targets, ids)
        rows = owners.nonzero()[:, 0]
        if owners.shape != labels.shape or not torch.equal(labels[rows], targets[rows]):
            raise ModelError("verl packs a micro-batch in another way than GAR does. Is it another version of verl?")
        signal, temperature = requested_signal(tu.get_non_tensor_data(batch, REQUEST, None))
        return head_means(
            inputs,
            rows,
            (targets[rows], owners[rows] - 1, len(batch)),
            signal,
            temperature=temperature,
            vocab_size=self.model_config.hf_config.get_text_config().vocab_size,
        )

    def _packed(self, values: Tensor, like: Tensor) -> Tensor:
        """One number per token of jagged `like`, for the tokens of verl's pass on this context rank."""
        config, model = self.engine_config, unwrap_model(self.module[0])
        packed, _, _ = preprocess_thd_engine(
            torch.nested.nested_tensor_from_jagged(values, like.offsets()),
            use_fp8_padding=model.config.fp8 in ("e4m3", "hybrid"),
            pad_to_length_bucket=config.pad_to_length_bucket if config.pad_to_length else None,
            cp_layout=self._get_context_parallel_layout(model),
        )
        return packed[0]
