"""vLLM's CPU worker under verl, with weights that can be replaced.

By itself it packs the weights of linear layers and drops the ones that verl loads into: the job would wait forever.
"""

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


def _plain(layer: Any, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """verl's, in a worker that has loaded no weights yet."""

    def __new__(cls, **kwargs: Any) -> Any:
        from vllm.model_executor.layers import utils  # pyright: ignore[reportMissingImports]: an extra

        utils.dispatch_cpu_unquantized_gemm = _plain
        return super().__new__(cls, **kwargs)
