"""The settings of `gar eval`. Importing this imports no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from gar.config import parse_yaml
from gar.settings import ModelSettings, Settings
from gar.types import PromptTemplate, ResponseFormat


def template_text(arguments: Mapping[str, Any] | None) -> str | None:
    """Arguments of the chat template as `set.json` has them. None for none."""
    return json.dumps(arguments, sort_keys=True, default=str) if arguments else None


class ScoreSettings(Settings):
    """How samples are graded, and for which k."""

    format: ResponseFormat | None = None
    """Format in which responses are read. By default the format of the template."""
    num_workers: Annotated[int, Field(ge=1)] = 2
    """Processes that parse answers."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Time limit, after which the worker is killed and the sample has status timeout."""
    pass_at_k: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Compute pass@k and maj@k for these k, at most the number of samples. By default powers of 2, up to all."""
    allow_degenerate: bool = False
    """Exit with 0 even if every response failed in the same way, for example was cut off."""


class GenerateJob(Settings):
    """Which model answers which benchmarks, and how."""

    model: ModelSettings
    benchmark: tuple[str, ...]
    """Comma-separated: NAME, NAME@REVISION, NAME=FILE with the published columns, or your own file of problems."""
    prompt_field: str | None = None
    """Column of the problem's text, in a file of problems."""
    answer_field: str | None = None
    """Column of the gold answer, in a file of problems."""
    out: Path | None = None
    """Folder of the results, with a folder for each benchmark. By default evals/MODEL."""
    samples: Annotated[int, Field(ge=1)] | None = None
    """Samples per problem. By default 32 for sets under 100 problems, 16 up to 1,000, else 1."""
    template: PromptTemplate | None = None
    """Format that the prompts ask for (see --data.template). By default think-answer, or plain if embedded."""
    chat_template_kwargs: str | None = None
    """Arguments of the chat template in YAML, as --trl.chat_template_kwargs: '{enable_thinking: false}'."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Divides the logits. 0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the most likely tokens that together have this probability."""
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest response. By default 8192, or the rest of the model's context."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the sampling."""
    batch_size: Annotated[int, Field(ge=1)] = 256
    """Responses generated at the same time, fewer if memory runs out. A kill loses at most one batch."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Use only the first problems of each benchmark, at most this many."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """Library that generates. vllm needs the extra vllm."""
    device: str | None = None
    """For example cuda:1 or cpu. By default an accelerator if there is one."""
    overwrite: bool = False
    """Remove earlier results and start again."""

    @model_validator(mode="after")
    def _check_temperature(self) -> Self:
        if self.backend == "vllm" and 0 < self.temperature < 0.01:
            raise ValueError(f"vLLM raises a temperature of {self.temperature:g} to 0.01. Take that, or 0 for greedy.")
        return self

    @model_validator(mode="after")
    def _check_template_arguments(self) -> Self:
        if not isinstance(self.template_arguments, dict):
            raise ValueError(f"chat_template_kwargs is {self.chat_template_kwargs!r}, expected '{{NAME: VALUE}}'.")
        return self

    @property
    def template_arguments(self) -> dict[str, Any]:
        """Arguments of the chat template."""
        text = self.chat_template_kwargs
        return {} if text is None else parse_yaml(text, "chat_template_kwargs")

    def num_samples(self, num_problems: int) -> int:
        """Samples per problem of a set of this size."""
        if self.samples is not None:
            return self.samples
        return 32 if num_problems < 100 else 16 if num_problems <= 1_000 else 1
