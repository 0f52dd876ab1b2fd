"""Sampling for preflight and evaluations, on the main process, or by vLLM on all ranks.

With vLLM the main process works, and the others join each call of `generate` with the same random numbers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, cast

import torch
from accelerate.utils import broadcast_object_list, gather_object, send_to_device
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig
from trl import GRPOConfig
from trl.trainer.utils import selective_log_softmax

from gar.errors import DataError, GarError, ModelError
from gar.integrations.trl.ranks import Result, is_main, on_main
from gar.models.generate import generation_state

Written = tuple[list[int], list[float]] | None
"""The tokens of a response and vLLM's log-probability of each. None if the model's probabilities are NaN."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmSample:
    """A response that vLLM wrote: token ids, and vLLM's log-probability of each token of the response."""

    prompt_ids: list[int]
    ids: list[int]
    log_probs: list[float]


def sample_on_main(
    work: Callable[[], Result], model: Any, vllm: Any = None, seen: list[VllmSample] | None = None
) -> Result:
    """`on_main` for work that only calls `generate` of the unwrapped policy `model`.

    The model must be whole, or spread by `zero.Init`, which each rank then gathers. `vllm`, TRL's `VLLMGeneration`,
    samples in place of the model, on all ranks, and each response is added to `seen`.
    """
    if vllm is not None:
        with vllm_generate(vllm, seen) as generate:
            return _lead(work, model, generate) if is_main() else cast(Result, _follow(model, generate))
    with _gathered(model):
        return on_main(work)


def _gathered(model: Any) -> AbstractContextManager[object]:
    """The parameters that `zero.Init` has spread, whole on every rank."""
    parameters = [parameter for parameter in model.parameters() if hasattr(parameter, "ds_id")]
    if not parameters:
        return nullcontext()
    import deepspeed  # pyright: ignore[reportMissingImports]: it made the parameters

    return deepspeed.zero.GatheredParameters(parameters)


def _lead(work: Callable[[], Result], model: Any, generate: Callable[..., Any]) -> Result:
    """Do the work. Announce each call of `generate`, and the end, to the other ranks."""
    outcome, others_wait = ("failed", None), True

    def generate_on_all(**inputs: Any) -> Any:
        nonlocal others_wait
        device = model.device
        random_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        broadcast_object_list([("generate", (send_to_device(inputs, "cpu"), random_state))])
        try:
            return generate(**inputs)
        except BaseException as error:
            others_wait = isinstance(error, GarError)  # they raise it too. Other errors leave them in `generate`
            raise

    model.generate = generate_on_all
    try:
        result = work()
        outcome = ("done", result)
    finally:
        del model.generate
        if others_wait:
            broadcast_object_list([outcome])
    return result


def _follow(model: Any, generate: Callable[..., Any]) -> Any:
    """Make the main process's calls of `generate` with it, until its work has ended. Return its result."""
    device = model.device
    while True:
        message: list[Any] = [None]
        event, content = broadcast_object_list(message)[0]
        if event == "failed":
            raise SystemExit(1)
        if event == "done":
            return content
        inputs, random_state = content
        with (
            generation_state(model, inputs["generation_config"], seed=0),
            suppress(GarError),  # NaN or a long prompt, which the main process reports
        ):
            if device.type == "cuda":
                torch.cuda.set_rng_state(random_state, device)
            else:
                torch.set_rng_state(random_state)
            generate(**send_to_device(inputs, device))


def colocated_vllm(trainer: Any) -> Any:
    """The `VLLMGeneration` of a trainer in colocate mode, else None."""
    vllm = getattr(trainer, "vllm_generation", None)
    return vllm if vllm is not None and vllm.mode == "colocate" else None


@contextmanager
def vllm_generate(vllm: Any, seen: list[VllmSample] | None = None) -> Iterator["VllmGenerate"]:
    """A `generate` by vLLM on all ranks. Its memory is freed afterwards, if it sleeps during updates."""
    try:
        yield VllmGenerate(vllm, seen)
    finally:
        if vllm.enable_sleep_mode and not vllm._llm_weights_sleeping:
            vllm.llm.sleep(level=2)
            vllm._llm_weights_sleeping = True


class VllmGenerate:
    """`generate` of transformers, as far as `gar.models.generate` calls it.

    All ranks call it with the same arguments and random state, and each vLLM writes a share of the responses. Each
    response has its seed, so that the number of ranks does not change it.
    """

    def __init__(self, vllm: Any, seen: list[VllmSample] | None = None):
        self._vllm, self._seen = vllm, seen
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
        if self._seen is not None:
            self._seen += [
                VllmSample(prompt_ids=prompt, ids=ids, log_probs=log_probs)
                for prompt, (ids, log_probs) in zip(prompts, found, strict=True)
            ]
        rows = [torch.tensor(ids, device=input_ids.device) for ids, _ in found]
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

    def _written(
        self, prompts: Sequence[list[int]], params: Sequence[dict[str, Any]]
    ) -> list[tuple[list[int], list[float]]]:
        """The responses of all ranks' vLLMs. Ranks that share one (tensor parallelism) write the same."""
        state, shared = self._vllm.accelerator, self._vllm.tensor_parallel_size
        mine = range(state.process_index // shared, len(prompts), state.num_processes // shared)
        written = self._complete([prompts[i] for i in mine], [params[i] for i in mine])
        of_all = dict(gather_object(list(zip(mine, written, strict=True))))
        found = [of_all[i] for i in range(len(prompts))]
        whole = [written for written in found if written is not None]
        if len(whole) < len(found):
            raise ModelError(
                "the model's probabilities are NaN in vLLM, so nothing can be sampled. Did training diverge, or is "
                "the checkpoint damaged? Look for NaN in its weights.",
                code="not-finite",
            )
        return whole

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
    ids = list(output.token_ids)
    log_probs = [at[token].logprob for token, at in zip(ids, output.logprobs, strict=True)]
    return None if math.isnan(log_probs[0]) else (ids, log_probs)


@torch.no_grad()
def mean_ratio(model: Any, seen: Sequence[VllmSample], arguments: GRPOConfig) -> float:
    """TRL's metric `SAMPLING_RATIO` for these responses, from the whole policy `model`.

    Source: `GRPOTrainer._generate_and_score_completions`.
    """
    level, bound = arguments.vllm_importance_sampling_mode.split("_")
    low, high = arguments.vllm_importance_sampling_clip_min, arguments.vllm_importance_sampling_clip_max
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    ratios = []
    for sample in seen:
        differences = _log_probs(model, sample, arguments) - torch.tensor(sample.log_probs, device=model.device)
        differences = differences.nan_to_num(nan=0.0)
        ratios.append((differences.sum(0, keepdim=True) if level == "sequence" else differences).exp())
    ratio = torch.cat(ratios)
    bounded = ratio.clamp(low, high) if bound == "truncate" else ratio.masked_fill((ratio < low) | (ratio > high), 0)
    return bounded.mean().item()


def _log_probs(model: Any, sample: VllmSample, arguments: GRPOConfig) -> Tensor:
    """The policy's log-probability of each token of a response, float32 [tokens]."""
    ids = torch.tensor([*sample.prompt_ids, *sample.ids], device=model.device)
    number = len(sample.ids)
    with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=bool(arguments.bf16)):
        logits = model(input_ids=ids[None]).logits[0, -number - 1 : -1]
    return selective_log_softmax(logits.float() / arguments.temperature, ids[-number:])
