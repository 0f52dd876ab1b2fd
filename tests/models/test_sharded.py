"""A model sharded over two ranks by `fully_shard` gives the vectors and scores of the whole one."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from gar.models.embedded import load_embedded
from gar.models.families import find_parts
from gar.scoring import GARScorer, ResponseGroup, signal_means
from gar.settings import SignalSettings
from tests.models.test_families import VOCAB, tiny
from tests.support.autograd import random_sequences
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.dist

SEQUENCES = random_sequences(VOCAB, [(5, 12, range(12)), (9, 17, range(3, 15)), (2, 6, [0, 3, 5])])
GROUPS = [
    ResponseGroup(
        prompt="3+4*7-2=",
        responses=[
            "<think> = 7 ; = 9 ; = 7 </think> <answer> 7 </answer>",
            "<think> ? = 7 </think> <answer> 7 </answer>",
        ],
        anchors=["<think> 3 + 4 = 7 ; 7 * 7 = 9 ; 9 - 2 = 7 </think> <answer> 7 </answer>"],
        eligible=[True, True],
    )
]
WRAPPINGS = ("layers and root", "root alone", "head apart", "gathered after use")


def shard(model: Any, wrapping: str) -> Any:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if wrapping != "root alone":
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
    if wrapping == "head apart":
        fully_shard(model.lm_head, mesh=mesh)
    return fully_shard(model, mesh=mesh, reshard_after_forward=True if wrapping == "gathered after use" else None)


def sharded_means(tied: bool) -> dict[str, tuple[bool, torch.Tensor]]:
    """Whether all parameters are DTensors before, and the means, for each way of wrapping."""
    found = {}
    for wrapping in WRAPPINGS:
        if tied and wrapping == "head apart":
            continue
        model = shard(tiny("Qwen3", tie_word_embeddings=tied), wrapping)
        are_sharded = all(isinstance(parameter, DTensor) for parameter in model.parameters())
        parts = find_parts(model)
        whole = parts.gathered()  # from here on the ranks may read the head as often as they like
        if dist.get_rank() == 0:
            assert whole.weight.shape == (VOCAB, 24)
        assert parts.width == 24
        found[wrapping] = (
            are_sharded,
            torch.stack(
                [signal_means(each, SEQUENCES, SignalSettings(max_batch_tokens=20)) for each in (parts, whole)]
            ),
        )
    return found


def sharded_scores() -> tuple[str, list[float]]:
    model, tokenizer = load_embedded()
    shard(model, "layers and root")
    kind = type(next(model.parameters())).__name__
    return kind, [float(score.alignment or 0.0) for score in GARScorer(model, tokenizer).score(GROUPS)]


class GatheredParameters:
    """What ZeRO-3 promises: inside, the parameters are whole on every rank; outside they are empty."""

    entered = 0

    def __init__(self, parameters: list[Any]):
        self._parameters = parameters

    def __enter__(self) -> None:
        GatheredParameters.entered += 1
        for parameter in self._parameters:
            parameter.data = parameter.partitions

    def __exit__(self, *error: Any) -> None:
        for parameter in self._parameters:
            parameter.data = torch.empty(0)


def test_find_parts_of_a_zero_3_model_gathers_the_head_as_deepspeed_asks(monkeypatch: pytest.MonkeyPatch):
    """Against a stand-in for deepspeed; tests/engines/deepspeed has the real one."""
    expected = signal_means(find_parts(tiny("Qwen3")), SEQUENCES, SignalSettings())
    model = tiny("Qwen3")
    model.ds_id = 0  # DeepSpeed has wrapped it
    weight = model.lm_head.weight
    weight.ds_id, weight.ds_shape, weight.partitions = 0, weight.shape, weight.data
    gathering = GatheredParameters([weight])
    gathering.__exit__()
    model.lm_head.register_forward_pre_hook(lambda module, args: gathering.__enter__())
    model.lm_head.register_forward_hook(lambda module, args, output: gathering.__exit__())
    deepspeed = SimpleNamespace(zero=SimpleNamespace(GatheredParameters=GatheredParameters))
    monkeypatch.setitem(sys.modules, "deepspeed", deepspeed)

    parts = find_parts(model)
    assert parts.width == 24
    assert weight.numel() == 0
    whole = parts.gathered()
    entered = GatheredParameters.entered
    torch.testing.assert_close(signal_means(whole, SEQUENCES, SignalSettings()), expected, rtol=0, atol=1e-6)
    num_forwards = len(SEQUENCES)  # their lengths differ by more than half: a pass each
    assert GatheredParameters.entered - entered <= num_forwards  # for the passes alone, not for the head
    assert weight.numel() == 0


@pytest.mark.parametrize("tied", [True, False])
def test_find_parts_of_a_sharded_model_give_the_vectors_of_the_whole_one(tmp_path: Path, tied: bool):
    expected = signal_means(find_parts(tiny("Qwen3", tie_word_embeddings=tied)), SEQUENCES, SignalSettings())
    for found in run_ranks(sharded_means, 2, tmp_path, tied):
        assert len(found) == (3 if tied else 4)
        for are_sharded, means in found.values():
            assert are_sharded
            torch.testing.assert_close(means, expected.expand_as(means), rtol=0, atol=1e-6)


def test_scorer_of_a_sharded_model_scores_as_with_the_whole_one(tmp_path: Path):
    expected = [score.alignment for score in GARScorer(*load_embedded()).score(GROUPS)]
    for kind, alignments in run_ranks(sharded_scores, 2, tmp_path):
        assert kind == "DTensor"
        assert alignments == pytest.approx(expected, abs=1e-6)
