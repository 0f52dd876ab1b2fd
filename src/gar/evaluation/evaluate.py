"""Evaluate a policy on a set of problems: sample, verify, count."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from gar.errors import DataError
from gar.evaluation.grading import Group, SetResult, graded_groups
from gar.rollouts.generate import encode_prompt, generate_responses
from gar.sequences import ends_in_thinking_tag, token_pieces
from gar.settings import EvaluateSettings
from gar.types import Problem, Prompt, ResponseVerifier, Tags


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How responses are drawn. The fields are arguments of `generate_responses` and `encode_prompt`."""

    max_new_tokens: int
    temperature: float
    top_p: float = 1.0
    seed: int
    batch_size: int = 64
    chat_template_kwargs: Mapping[str, Any] | None = None
    generation_kwargs: Mapping[str, Any] | None = None


def evaluate_policy(
    model: PreTrainedModel,
    tokenizer: Any,
    problems: Sequence[Problem],
    verifier: ResponseVerifier,
    settings: EvaluateSettings,
    *,
    seed: int,
    max_new_tokens: int,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> SetResult:
    """Sample responses to the first `settings.max_problems`, verify them, and estimate pass@k.

    Raises:
        DataError, ModelError: As `sample_groups`.
    """
    start = time.perf_counter()
    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        temperature=settings.temperature,
        seed=seed,
        batch_size=settings.batch_size,
        chat_template_kwargs=chat_template_kwargs,
    )
    number, asked = settings.num_samples, problems[: settings.max_problems]
    groups = sample_groups(model, tokenizer, asked, verifier, sampling, num_samples=number, progress="evaluate")
    seconds = time.perf_counter() - start
    return SetResult(groups=groups, ks=settings.pass_at_k, format=verifier.format, seconds=seconds)


def sample_groups(
    model: PreTrainedModel,
    tokenizer: Any,
    problems: Sequence[Problem],
    verifier: ResponseVerifier,
    sampling: Sampling,
    *,
    num_samples: int,
    progress: str | None = None,
) -> tuple[Group, ...]:
    """Sample a group of responses to each problem, and verify them. Without `progress` there is no bar.

    Raises:
        DataError: There are no problems, or a prompt does not fit into the context.
        ModelError: As `generate_responses`.
    """
    if not problems:
        raise DataError("there are no problems to sample responses to. Is the file empty, or was every row dropped?")
    prompts = [problem.prompt for problem in problems]
    prompt_ids, prefilled = encode_prompts(tokenizer, prompts, verifier.tags, sampling.chat_template_kwargs)
    sampled = generate_responses(
        model,
        tokenizer,
        prompt_ids,
        num_samples=num_samples,
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        batch_size=sampling.batch_size,
        seed=sampling.seed,
        tags=verifier.tags,
        generation_kwargs=sampling.generation_kwargs,
        progress=progress,
    )
    return graded_groups(verifier, problems, sampled, prefilled=prefilled)


def encode_prompts(
    tokenizer: Any, prompts: Sequence[Prompt], tags: Tags, template: Mapping[str, Any] | None = None
) -> tuple[list[list[int]], list[bool]]:
    """The token ids of each prompt, and whether it ends in the opening thinking tag. Raises as `encode_prompt`."""
    pieces = token_pieces(tokenizer)
    prompt_ids = [encode_prompt(tokenizer, prompt, chat_template_kwargs=template) for prompt in prompts]
    return prompt_ids, [ends_in_thinking_tag(ids, pieces, tags) for ids in prompt_ids]
