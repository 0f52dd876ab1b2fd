"""The engines that generate responses: Hugging Face `generate`, or vLLM if its extra is installed."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gar.errors import ConfigError, ModelError, install_command
from gar.evaluation.evaluate import Sampling
from gar.evaluation.job import GenerateJob
from gar.models.embedded import model_path
from gar.models.load import load_policy
from gar.rollouts.generate import Response, context_length, generate_responses
from gar.scoring.device import choose_device
from gar.scoring.identity import tokenizer_hash, weights_hash
from gar.sequences import special_ids, without_trailing_special
from gar.types import Tags

GREEDY_TOP_P = 1e-9
"""top_p so small that sampling is greedy."""


class TransformersEngine:
    """Hugging Face `generate`, as in the evaluations of a training run.

    `context` is the maximum number of tokens of a prompt and its response together. None if unknown. `identity` has
    the backend and hashes of the model's weights and tokenizer.

    Raises:
        ConfigError: The device cannot be used.
        ModelError: The model cannot be loaded.
    """

    def __init__(self, job: GenerateJob) -> None:
        model, self.tokenizer = load_policy(job.model)
        self._model = model.to(choose_device(job.device)).eval()
        self.context = context_length(model)
        self.identity: Mapping[str, Any] = {
            "backend": "transformers",
            "weights": weights_hash(self._model),
            "tokenizer": tokenizer_hash(self.tokenizer),
        }

    def respond(self, prompt_ids: Sequence[Sequence[int]], sampling: Sampling) -> list[Response]:
        """Write one response to each prompt, all from one random stream. Temperature 0 is greedy.

        Raises:
            ModelError: The device's memory does not suffice, or as `generate_responses`.
        """
        try:
            written = generate_responses(
                self._model,
                self.tokenizer,
                prompt_ids,
                num_samples=1,
                max_new_tokens=sampling.max_new_tokens,
                temperature=sampling.temperature or 1.0,
                top_p=sampling.top_p if sampling.temperature else GREEDY_TOP_P,
                batch_size=len(prompt_ids),
                seed=sampling.seed,
            )
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"the device's memory does not suffice for {len(prompt_ids)} responses of up to "
                f"{sampling.max_new_tokens} tokens at one time: {error} Run the same command with a lower --batch-size "
                "to continue."
            ) from error
        return [responses[0] for responses in written]


class VllmEngine:
    """vLLM's offline `LLM`. Its samples differ from Hugging Face's of the same seed.

    vLLM does not show its weights, so `identity` has the name and the revision of the model.

    Raises:
        ConfigError: vLLM is not installed.
    """

    def __init__(self, job: GenerateJob) -> None:
        try:
            from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]: an extra
        except ImportError as error:
            raise ConfigError(f"--backend vllm needs vLLM: {install_command('trl[vllm]')}") from error
        model = job.model
        self._params = SamplingParams
        self._llm = LLM(model=model_path(model.path), revision=model.revision, dtype=model.dtype, seed=0)
        self.tokenizer = self._llm.get_tokenizer()
        self.context: int | None = self._llm.llm_engine.model_config.max_model_len
        self.identity: Mapping[str, Any] = {
            "backend": "vllm",
            "weights": f"{model.path}@{model.revision}",
            "tokenizer": tokenizer_hash(self.tokenizer),
        }

    def respond(self, prompt_ids: Sequence[Sequence[int]], sampling: Sampling) -> list[Response]:
        """As `TransformersEngine`, but each prompt has a random stream, from the seed and its place in the batch."""
        params = [
            self._params(
                n=1,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_new_tokens,
                seed=(sampling.seed + place) % 2**48,
            )
            for place in range(len(prompt_ids))
        ]
        prompts = [{"prompt_token_ids": list(ids)} for ids in prompt_ids]
        stripped = special_ids(self.tokenizer, Tags())
        responses = []
        for output in (each.outputs[0] for each in self._llm.generate(prompts, params, use_tqdm=False)):
            body = without_trailing_special(output.token_ids, stripped)
            text = self.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            truncated = output.finish_reason == "length"
            responses.append(Response(ids=tuple(output.token_ids), text=text, truncated=truncated))
        return responses


SamplingEngine = TransformersEngine | VllmEngine
ENGINES: Mapping[str, type[SamplingEngine]] = {"transformers": TransformersEngine, "vllm": VllmEngine}
"""By the name of the backend."""
