"""A plugin for vLLM on a CPU, with which transformers cannot sample."""

from typing import Any

from transformers import GenerationMixin

from tests.engines.vllm import shim  # noqa: F401  it changes vLLM


def _fail(*_: Any, **__: Any) -> Any:
    raise AssertionError("transformers samples")


GenerationMixin.generate = _fail
