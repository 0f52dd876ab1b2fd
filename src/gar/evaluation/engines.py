"""What samples responses: transformers, in training and in `gar eval`, or vLLM's offline `LLM`."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from transformers import PreTrainedModel

from gar.errors import DataError
from gar.evaluation.job import GenerateJob
from gar.models.device import choose_device
from gar.models.embedded import model_path
from gar.models.generate import Sampling, generate_responses
from gar.models.load import load_policy
from gar.models.rope import context_of
from gar.reader import (
    check_template_arguments,
    encode_prompt,
    ends_in_thinking_tag,
    special_ids,
    token_pieces,
    without_trailing_special,
)
from gar.records.checkpoints import check_saved_model
from gar.records.files import canonical_hash
from gar.response import Response, TokenSequence
from gar.settings import EvaluateSettings
from gar.types import Problem, Tags

GREEDY_TOP_P = 1e-9
"""top_p so small that sampling is greedy."""


class TransformersEngine:
    """Hugging Face `generate`. `tags` stay in the text even if they are special tokens."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any, tags: Tags | None = None) -> None:
        self.tokenizer, self.tags, self._model = tokenizer, tags or Tags(), model

    @property
    def context(self) -> int | None:
        """The maximum number of tokens of a prompt and its response together. None if unknown."""
        return context_of(self._model.config)

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """The backend and hashes of the model's weights and tokenizer."""
        return {
            "backend": "transformers",
            "weights": weights_hash(self._model),
            "tokenizer": tokenizer_hash(self.tokenizer),
        }

    def respond(
        self, prompt_ids: Sequence[Sequence[int]], sampling: Sampling, progress: str | None = None
    ) -> list[list[Response]]:
        """Write responses to each prompt, all from one random stream. Temperature 0 is greedy.

        Raises:
            DataError, ModelError: As `generate_responses`.
        """
        drawn = sampling if sampling.temperature else replace(sampling, temperature=1.0, top_p=GREEDY_TOP_P)
        return generate_responses(self._model, self.tokenizer, prompt_ids, drawn, tags=self.tags, progress=progress)


class VllmEngine:
    """vLLM's offline `LLM`. Its samples differ from Hugging Face's of the same seed.

    vLLM does not show its weights, so `identity` has the name and the revision of the model.
    """

    def __init__(self, job: GenerateJob) -> None:
        from vllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]: an extra

        model = job.model
        check_saved_model(model_path(model.path))
        self._params = SamplingParams
        self._llm = LLM(model=model_path(model.path), revision=model.revision, dtype=model.dtype, seed=0)
        self.tokenizer, self.tags = self._llm.get_tokenizer(), Tags()
        self.context: int | None = self._llm.llm_engine.model_config.max_model_len
        self.identity: Mapping[str, Any] = {
            "backend": "vllm",
            "weights": f"{model.path}@{model.revision}",
            "tokenizer": tokenizer_hash(self.tokenizer),
        }

    def respond(
        self, prompt_ids: Sequence[Sequence[int]], sampling: Sampling, progress: str | None = None
    ) -> list[list[Response]]:
        """Write one response to each prompt, with a random stream from the seed and the prompt's place."""
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
        stripped = special_ids(self.tokenizer, self.tags)
        responses = []
        for output in (each.outputs[0] for each in self._llm.generate(prompts, params, use_tqdm=False)):
            body = without_trailing_special(output.token_ids, stripped)
            text = self.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            truncated = output.finish_reason == "length"
            sequence = TokenSequence(ids=tuple(output.token_ids))
            responses.append([Response(sequence=sequence, text=text, truncated=truncated)])
        return responses


SamplingEngine = TransformersEngine | VllmEngine


def load_engine(job: GenerateJob) -> SamplingEngine:
    """The engine of a job, with its model."""
    if job.backend == "vllm":
        return VllmEngine(job)
    model, tokenizer = load_policy(job.model)
    return TransformersEngine(model.to(choose_device(job.device)).eval(), tokenizer)


def weights_hash(model: torch.nn.Module) -> str:
    """BLAKE2 over names, shapes, types and values of every weight: about a second per GB on one core."""
    digest = hashlib.blake2b(digest_size=32)
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of the tokenizer's rules and its chat template."""
    rules = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    return canonical_hash([rules, tokenizer.chat_template])


def evaluation_sampling(
    settings: EvaluateSettings, *, seed: int, max_new_tokens: int, chat_template_kwargs: Mapping[str, Any] | None = None
) -> Sampling:
    """How a training run samples in its evaluations."""
    return Sampling(
        num_samples=settings.num_samples,
        max_new_tokens=max_new_tokens,
        temperature=settings.temperature,
        seed=seed,
        batch_size=settings.batch_size,
        chat_template_kwargs=chat_template_kwargs,
    )


def sample(
    engine: SamplingEngine, problems: Sequence[Problem], sampling: Sampling, progress: str | None = None
) -> list[list[Response]]:
    """Sample responses to each problem. They have no verdicts yet. Without `progress` there is no bar.

    Raises:
        DataError: There are no problems, or a prompt does not fit into the context.
        ModelError: As `generate_responses`.
    """
    if not problems:
        raise DataError("there are no problems to sample responses to. Is the file empty, or was every row dropped?")
    prompt_ids, prefilled = encode_prompts(engine, problems, sampling.chat_template_kwargs)
    sampled = engine.respond(prompt_ids, sampling, progress)
    return [
        [replace(response, prefilled=flag) for response in group]
        for group, flag in zip(sampled, prefilled, strict=True)
    ]


def encode_prompts(
    engine: SamplingEngine, problems: Sequence[Problem], template: Mapping[str, Any] | None = None
) -> tuple[list[list[int]], list[bool]]:
    """The token ids of each prompt, and whether it ends in the opening thinking tag.

    A `ModelError` as `encode_prompt`, or if the chat template does not read an argument.
    """
    check_template_arguments(engine.tokenizer, template)
    tokenizer, pieces = engine.tokenizer, token_pieces(engine.tokenizer)
    prompt_ids = [encode_prompt(tokenizer, problem.prompt, chat_template_kwargs=template) for problem in problems]
    return prompt_ids, [ends_in_thinking_tag(ids, pieces, engine.tags) for ids in prompt_ids]
