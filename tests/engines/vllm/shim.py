"""vLLM for tests on a CPU, as a plugin: weights that can be replaced, in the trainer's precision.

Its build for CPUs packs the weights of linear layers where the processor can, and drops the ones that a trainer would
overwrite. By itself it computes in bfloat16. In float32 equal weights give equal probabilities.
"""

from functools import partial
from typing import Any

import torch
from trl.generation import vllm_generation
from vllm.model_executor.layers import utils  # pyright: ignore[reportMissingImports]: an extra


def _plain(layer: Any, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


utils.dispatch_cpu_unquantized_gemm = _plain
vllm_generation.LLM = partial(vllm_generation.LLM, dtype="float32")
