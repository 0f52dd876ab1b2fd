"""Sampling for preflight and evaluations with the vLLM of a trainer, in place of the policy's `generate`."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from gar.errors import DataError, ModelError

Written = list[int] | None
"""The tokens of a response. None if the model's probabilities are NaN."""


def colocated_vllm(trainer: Any) -> Any:
    """The `VLLMGeneration` of a trainer in colocate mode, else None."""
    vllm = getattr(trainer, "vllm_generation", None)
    return vllm if vllm is not None and vllm.mode == "colocate" else None


@contextmanager
def vllm_generate(vllm: Any) -> Iterator["VllmGenerate"]:
    """A `generate` by vLLM on all ranks. Its memory is freed afterwards, if it sleeps during updates."""
    try:
        yield VllmGenerate(vllm)
    finally:
        if vllm.enable_sleep_mode and not vllm._llm_weights_sleeping:
            vllm.llm.sleep(level=2)
            vllm._llm_weights_sleeping = True


class VllmGenerate:
    """`generate` of transformers, as far as `gar.rollouts.generate` calls it.

    All ranks call it with the same arguments and random state, and each vLLM writes a share of the responses. Each
    response has its seed, so that the number of ranks does not change it.
    """

    def __init__(self, vllm: Any):
        self._vllm = vllm
        self._has_weights = False

    @torch.no_grad()
    def __call__(
        self, *, input_ids: Tensor, attention_mask: Tensor, generation_config: GenerationConfig, **_: Any
    ) -> Tensor:
        """The prompts, padded on the left, with their responses, padded on the right."""
        masked = zip(input_ids, attention_mask.bool(), strict=True)
        prompts = [row[is_token].tolist() for row, is_token in masked]
        self._check_lengths(max(map(len, prompts)), generation_config)
        if not self._has_weights:
            self._vllm.sync_weights()
            if self._vllm.enable_sleep_mode:
                self._vllm.llm.wake_up(tags=["kv_cache"])
            self._has_weights = True
        seeds = torch.randint(2**48, (len(prompts),), device=input_ids.device).tolist()
        found = self._written(prompts, [_params(generation_config, seed) for seed in seeds])
        rows = [torch.tensor(ids, device=input_ids.device) for ids in found]
        pad: Any = generation_config.pad_token_id
        return torch.cat([input_ids, pad_sequence(rows, batch_first=True, padding_value=pad)], dim=1)

    def _check_lengths(self, longest: int, config: GenerationConfig) -> None:
        """vLLM would cut responses in silence."""
        context, new = self._vllm.llm.llm_engine.model_config.max_model_len, config.max_new_tokens or 0
        if longest + new > context:
            raise DataError(
                f"a prompt has {longest} tokens and its response up to {new}, but vLLM was started for {context} "
                "together. Raise --trl.vllm_max_model_length, drop long prompts with --data.max_prompt_tokens, or "
                "lower --trl.max_completion_length.",
                code="long-prompt",
            )

    def _written(self, prompts: Sequence[list[int]], params: Sequence[dict[str, Any]]) -> list[list[int]]:
        """The responses of all ranks' vLLMs. Ranks that share one (tensor parallelism) write the same."""
        state, shared = self._vllm.accelerator, self._vllm.tensor_parallel_size
        mine = range(state.process_index // shared, len(prompts), state.num_processes // shared)
        written = self._complete([prompts[i] for i in mine], [params[i] for i in mine])
        of_all = dict(gather_object(list(zip(mine, written, strict=True))))
        found = [of_all[i] for i in range(len(prompts))]
        if None in found:
            raise ModelError(
                "the model's probabilities are NaN in vLLM, so nothing can be sampled. Did training diverge, or is "
                "the checkpoint damaged? Look for NaN in its weights.",
                code="not-finite",
            )
        return found

    def _complete(self, prompts: Sequence[list[int]], params: Sequence[dict[str, Any]]) -> list[Written]:
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]: an extra

        if not prompts:
            return []
        outputs = self._vllm.llm.generate(
            [{"prompt_token_ids": ids} for ids in prompts], [SamplingParams(**each) for each in params], use_tqdm=False
        )
        return [_checked(output.outputs[0]) for output in outputs]


def _params(config: GenerationConfig, seed: int) -> dict[str, Any]:
    """vLLM's sampling parameters of a `GenerationConfig`. Its end tokens alone end a response."""
    return {
        "n": 1,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k or 0,
        "min_p": config.min_p or 0.0,
        "repetition_penalty": config.repetition_penalty or 1.0,
        "max_tokens": config.max_new_tokens,
        "stop_token_ids": config.eos_token_id,
        "ignore_eos": True,
        "logprobs": 0,  # the sampled token's alone
        "seed": seed,
    }


def _checked(output: Any) -> Written:
    first = output.logprobs[0][output.token_ids[0]].logprob
    return None if math.isnan(first) else list(output.token_ids)
