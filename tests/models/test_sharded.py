"""A model sharded over two ranks by `fully_shard` gives the vectors of the whole one."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from gar.models.families import find_parts
from gar.scoring import signal_means
from gar.settings import SignalSettings
from tests.models.test_families import SEQUENCES, VOCAB, tiny
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.dist

WRAPPINGS = ("layers and root", "root alone", "head apart", "gathered after use")


def shard(model: Any, wrapping: str) -> Any:
    mesh = init_device_mesh(model.device.type, (dist.get_world_size(),))
    if wrapping != "root alone":
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
    if wrapping == "head apart":
        fully_shard(model.lm_head, mesh=mesh)
    return fully_shard(model, mesh=mesh, reshard_after_forward=True if wrapping == "gathered after use" else None)


def sharded_means() -> dict[tuple[bool, str], tuple[bool, torch.Tensor]]:
    """Whether all parameters are DTensors before, and the means, for tied weights or not and each way of wrapping."""
    found = {}
    for tied, wrapping in product((True, False), WRAPPINGS):
        if tied and wrapping == "head apart":
            continue
        model = shard(tiny("Qwen3", tie_word_embeddings=tied), wrapping)
        are_sharded = all(isinstance(parameter, DTensor) for parameter in model.parameters())
        parts = find_parts(model)
        whole = parts.gathered()  # from here on the ranks may read the head as often as they like
        if dist.get_rank() == 0:
            assert whole.weight.shape == (VOCAB, 24)
        assert parts.width == 24
        settings = SignalSettings(max_batch_tokens=20)
        means = torch.stack([signal_means(each, SEQUENCES, settings) for each in (parts, whole)])
        found[tied, wrapping] = (are_sharded, means)
    return found


def test_find_parts_of_a_sharded_model_give_the_vectors_of_the_whole_one(tmp_path: Path):
    wholes = {tied: find_parts(tiny("Qwen3", tie_word_embeddings=tied)) for tied in (True, False)}
    expected = {tied: signal_means(parts, SEQUENCES, SignalSettings()) for tied, parts in wholes.items()}
    for found in run_ranks(sharded_means, 2, tmp_path):
        assert len(found) == 7
        for (tied, _), (are_sharded, means) in found.items():
            assert are_sharded
            torch.testing.assert_close(means, expected[tied].expand_as(means), rtol=0, atol=1e-6)
