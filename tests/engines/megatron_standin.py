"""Megatron's interfaces, as far as the plugin and slime's stand-in touch them, with data parallelism alone."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.engines.slime_standin import install_modules


class DistributedDataParallel(nn.Module):
    """Megatron's wrapper: the chunk is its `module`."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, **inputs: Any) -> Tensor:
        return self.module(**inputs)


class Head(nn.Module):
    """An output layer called as in GPTModel: with [tokens, 1, hidden], and the embedding's weight if tied."""

    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None
        self.sequence_parallel = False
        self.rows_seen: list[int] = []

    def forward(self, hidden: Tensor, weight: Tensor | None = None) -> tuple[Tensor, None]:
        self.rows_seen.append(len(hidden))
        return hidden @ (self.weight if weight is None else weight).T, None


class Policy(nn.Module):
    """Each hidden state follows from its token alone."""

    def __init__(self, vocab: int, hidden: int):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(vocab, hidden)
        self.output_layer = Head(torch.randn(vocab, hidden) / 4)

    def hidden_states(self, tokens: Tensor) -> Tensor:
        return torch.tanh(self.embedding(tokens) * 2)

    def forward(self, input_ids: Tensor, **_: Any) -> Tensor:
        logits, _ = self.output_layer(self.hidden_states(input_ids).transpose(0, 1))
        return logits.transpose(0, 1)


def forward_backward(
    *,
    forward_step_func: Callable[..., Any],
    data_iterator: list[Any],
    model: list[Any],
    num_microbatches: int,
    forward_only: bool,
    **_: Any,
) -> list[Any]:
    assert forward_only
    store = []
    for _ in range(num_microbatches):
        output, loss = forward_step_func(data_iterator[0], model[0])
        store.append(loss(output)[1])
    return store


def install() -> None:
    """Put the stand-in in Megatron's place, for this process."""
    mpu = ModuleType("megatron.core.mpu")
    for kind in ("tensor_model", "context", "pipeline_model"):
        setattr(mpu, f"get_{kind}_parallel_world_size", lambda: 1)
        setattr(mpu, f"get_{kind}_parallel_rank", lambda: 0)
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    mpu.get_tensor_model_parallel_group = lambda: alone
    mpu.get_data_parallel_group = lambda: None
    mpu.is_pipeline_last_stage = lambda ignore_virtual=True, vp_stage=None: True
    install_modules(
        {
            "megatron": {},
            "megatron.core": {"mpu": mpu},
            "megatron.core.mpu": mpu.__dict__,
            "megatron.core.distributed": {"DistributedDataParallel": DistributedDataParallel},
            "megatron.core.pipeline_parallel": {"get_forward_backward_func": lambda: forward_backward},
        }
    )
