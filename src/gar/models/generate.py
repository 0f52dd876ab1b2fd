"""Sample responses of a policy with Hugging Face `generate`, outside the training loop.

Responses are sampled as in training: the checkpoint's `generation_config` gives only the end tokens.
"""

import copy
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from gar.errors import DataError, ModelError, first_line
from gar.models.families import evaluation_mode
from gar.models.rope import context_of
from gar.reader import special_ids, without_trailing_special
from gar.response import Response, TokenSequence
from gar.types import Tags

TERMINAL_SECONDS, LINE_SECONDS = 2.0, 30.0
"""Delay of a progress bar on a terminal, and elsewhere the delay of a line and the time between two."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How responses are drawn.

    Attributes:
        num_samples: Responses per prompt, at least 1.
        max_new_tokens: Longest response.
        temperature: Divides the logits, positive.
        top_p: Probability mass that is sampled from, in (0, 1].
        seed: Seed for sampling.
        batch_size: Responses generated at one time. A batch shares one random stream, so a different size gives
            different responses.
        generation_kwargs: Further fields of transformers' `GenerationConfig`, for example top_k or min_p. They override
            those above.
        chat_template_kwargs: Arguments of the chat template, if the prompts are still to be encoded.
    """

    num_samples: int = 1
    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int
    batch_size: int = 256
    generation_kwargs: Mapping[str, Any] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None


def generate_responses(
    model: PreTrainedModel,
    tokenizer: Any,
    prompt_ids: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    tags: Tags | None = None,
    progress: str | None = None,
) -> list[list[Response]]:
    """Sample responses to every prompt.

    The same arguments give the same responses. Training modes, generation settings and random states of the process
    are restored.

    Args:
        model: A causal language model, not wrapped for distributed training.
        tokenizer: Its tokenizer. Its padding side does not matter.
        prompt_ids: Token ids of each prompt, from `encode_prompt`.
        sampling: How many responses to draw, and how.
        tags: Markers that stay in the text even if they are special tokens.
        progress: Label of the progress bar. Without a terminal a line is written to stderr every 30 seconds.

    Returns:
        For each prompt, in the order given, its responses. None of their tokens is marked as scored.

    Raises:
        ValueError: An argument is out of its range.
        DataError: A prompt has no tokens, or does not fit into the model's context with its response.
        ModelError: The tokenizer has no end token, the model's logits are NaN, or the device's memory is too small.
    """
    least = min(sampling.num_samples, sampling.max_new_tokens, sampling.batch_size)
    if least < 1 or not sampling.temperature > 0 or not 0 < sampling.top_p <= 1:
        raise ValueError(
            "num_samples, max_new_tokens and batch_size must be at least 1, temperature positive and top_p in (0, 1], "
            f"got {sampling}"
        )
    # What `generation_kwargs` sets goes over the fields of `sampling`, also in the checks.
    overrides = dict(sampling.generation_kwargs or {})
    end_ids = _end_ids(model, tokenizer, overrides.get("eos_token_id"))
    max_new_tokens = overrides.get("max_new_tokens", sampling.max_new_tokens)
    check_prompts(model, tokenizer, prompt_ids, max_new_tokens)
    stripped = special_ids(tokenizer, tags or Tags()) | set(end_ids)
    config = _generation_config(sampling, tokenizer, end_ids)
    # Longest first: rows of a batch have similar lengths, and a lack of memory shows in the first batch.
    longest_first = sorted(range(len(prompt_ids)), key=lambda i: -len(prompt_ids[i]))
    rows = [i for i in longest_first for _ in range(sampling.num_samples)]
    responses: list[list[Response]] = [[] for _ in prompt_ids]
    size = sampling.batch_size
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    shown = _Progress(progress, len(batches), max_new_tokens)
    with closing(shown.bar), generation_state(model, config, sampling.seed):
        for batch in batches:
            written = _generate_batch(model, [prompt_ids[i] for i in batch], config, shown)
            for i, ids in zip(batch, written.tolist(), strict=True):
                responses[i].append(_response(prompt_ids[i], ids, tokenizer, end_ids, stripped))
            shown.end_batch()
    return responses


def _generation_config(sampling: Sampling, tokenizer: Any, end_ids: list[int]) -> GenerationConfig:
    """What transformers' `generate` is given, and nothing of the checkpoint's own."""
    defaults = {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "max_new_tokens": sampling.max_new_tokens,
        "pad_token_id": end_ids[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
        "use_cache": True,
    }
    chosen = defaults | dict(sampling.generation_kwargs or {}) | {"eos_token_id": end_ids}
    return GenerationConfig(**chosen, disable_compile=True)


class _Progress(LogitsProcessor):
    """Shows the number of generated tokens: a bar on a terminal, elsewhere lines of the first rank."""

    def __init__(self, label: str | None, num_batches: int, max_new_tokens: int) -> None:
        self._max_new_tokens = max_new_tokens
        delay, interval = (TERMINAL_SECONDS, 0.1) if sys.stderr.isatty() else (LINE_SECONDS, LINE_SECONDS)
        silent = label is None or os.environ.get("RANK", "0") != "0"
        options: dict[str, Any] = {"delay": delay, "mininterval": interval, "disable": silent, "leave": None}
        self.bar = tqdm(total=num_batches * max_new_tokens, desc=label, unit="token", **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other ranks of a sharded model show nothing."""
        return _Progress, (None, 1, self._max_new_tokens)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.bar.update()
        return scores

    def end_batch(self) -> None:
        """Count the tokens that a batch did not need."""
        self.bar.update(-self.bar.n % self._max_new_tokens)


def _end_ids(model: PreTrainedModel, tokenizer: Any, chosen: int | list[int] | None) -> list[int]:
    """Ids that end a response: `chosen`, or the ids of the tokenizer and of the model's generation config."""
    if chosen is not None:
        return [chosen] if isinstance(chosen, int) else list(chosen)
    if tokenizer.eos_token_id is None:
        raise ModelError(
            "the tokenizer has no end-of-sequence token, so no response could ever end. Set tokenizer.eos_token "
            '(in tokenizer_config.json: "eos_token") to the token that the model writes at the end of an answer.',
            code="no-end-token",
        )
    declared = getattr(model.generation_config, "eos_token_id", None) or []
    return list(dict.fromkeys([tokenizer.eos_token_id, *([declared] if isinstance(declared, int) else declared)]))


def check_prompts(
    model: PreTrainedModel, tokenizer: Any, prompt_ids: Sequence[Sequence[int]], max_new_tokens: int
) -> None:
    """Raise a `DataError` for prompts without tokens, or that do not fit into the context with their response."""
    lengths = np.fromiter(map(len, prompt_ids), dtype=np.int64, count=len(prompt_ids))
    check_prompt_lengths(model, lengths, max_new_tokens, lambda i: tokenizer.decode(prompt_ids[i][:24]))


def check_prompt_lengths(
    model: PreTrainedModel, lengths: np.ndarray, max_new_tokens: int, text_of: Callable[[int], str]
) -> None:
    """As `check_prompts`, from the prompts' numbers of tokens and the text of each."""
    if (empty := np.flatnonzero(lengths == 0)).size:
        raise DataError(f"prompt {empty[0]} (counted from 0) has no tokens. Is its text empty?", code="empty-prompt")
    context = context_of(model.config)
    long = np.flatnonzero(lengths + max_new_tokens > (np.inf if context is None else context))
    if context is not None and long.size:
        raise DataError(
            f"prompt {long[0]} (counted from 0, {text_of(int(long[0]))[:60]!r}...) has {lengths[long[0]]} tokens, but "
            f"only {max(context - max_new_tokens, 0)} fit: the model's context is {context} tokens, of which responses "
            f"take {max_new_tokens}. {long.size} of {len(lengths)} prompts are too long. Drop them (gar train: "
            "--data.max_prompt_tokens), or allow shorter responses.",
            code="long-prompt",
        )


@contextmanager
def generation_state(model: PreTrainedModel, config: GenerationConfig, seed: int) -> Iterator[None]:
    """Evaluation mode, generation settings and a seeded random stream, all restored afterwards."""
    device = model.device
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        evaluation_mode(model),
        own_generation(model, config),
    ):
        # torch.manual_seed would also reseed devices whose state is not forked here.
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.default_generators[device.index].manual_seed(seed)
        yield


@contextmanager
def own_generation(model: Any, config: GenerationConfig | None) -> Iterator[None]:
    """Set aside the model's own generation settings, with which `generate` completes `config`. None keeps them."""
    owner = model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT's
    original = owner.generation_config
    owner.generation_config = copy.deepcopy(config) or original
    try:
        yield
    finally:
        owner.generation_config = original


def _generate_batch(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], config: GenerationConfig, progress: _Progress
) -> Tensor:
    """The new tokens after each prompt, [prompts, new tokens], padded on the right."""
    rows = [torch.tensor(ids) for ids in prompts]
    pad = cast(int, config.pad_token_id)
    input_ids = pad_sequence(rows, batch_first=True, padding_value=pad, padding_side="left")
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side="left")
    try:
        output = model.generate(  # pyright: ignore[reportCallIssue]: torch takes it for a module
            input_ids=input_ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=config,
            logits_processor=LogitsProcessorList([_RefuseNan(), progress]),
            synced_gpus=False,  # other ranks make no passes, whatever DeepSpeed is set to
        )
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"the device's memory is too small for {len(prompts)} responses of up to {config.max_new_tokens} tokens at "
            f"one time: {first_line(error)}. Lower the batch size (gar eval: --batch-size, gar train: "
            "--evaluate.batch_size) or the length.",
            code="memory",
        ) from error
    return output[:, input_ids.shape[1] :]


class _RefuseNan(LogitsProcessor):
    """Rejects a model with NaN in its first logits. Checking later tokens would stall a GPU."""

    def __init__(self) -> None:
        self.is_first = True

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.is_first and bool(torch.isnan(scores).any()):
            raise ModelError(
                "the model's logits are NaN, so nothing can be sampled. Did training diverge, or is the checkpoint "
                "damaged? Look for NaN in its weights.",
                code="not-finite",
            )
        self.is_first = False
        return scores


def _response(
    prompt_ids: Sequence[int], ids: Sequence[int], tokenizer: Any, end_ids: Sequence[int], stripped: frozenset[int]
) -> Response:
    """A row of new tokens, cut after its first end token."""
    end = next((i for i, token in enumerate(ids) if token in end_ids), None)
    ids = ids if end is None else ids[: end + 1]
    body = without_trailing_special(ids, stripped)
    text = tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    sequence = TokenSequence(context_ids=prompt_ids, ids=tuple(ids))
    return Response(sequence=sequence, text=text, truncated=end is None, empty=not text.strip())
