"""Scorer and trainer on a GPU against the CPU's records: the same responses, replayed in each way of training."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from peft import LoraConfig

from gar import GARScorer
from gar.data.arithmetic import load_arithmetic
from gar.models.embedded import load_embedded
from gar.models.families import find_parts
from gar.scoring import signal_means
from gar.settings import SignalSettings
from gar.verify import Verifier
from tests.integrations.conftest import TrainerFactory
from tests.integrations.replay import NotingTrainer, replay
from tests.models.test_families import SEQUENCES, tiny
from tests.models.test_sharded import WRAPPINGS, shard
from tests.scoring.test_scorer import written
from tests.support.autograd import largest_distance, own_means
from tests.support.ranks import run_ranks
from tests.support.rows import group_of

pytestmark = pytest.mark.gpu

LORA = {"task_type": "CAUSAL_LM", "r": 4, "target_modules": "all-linear", "lora_alpha": 64}
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "own passes": ({}, {}, 1e-5),
    "captured": ({"num_iterations": 2, "max_steps": 4}, {}, 1e-5),
    "checkpointing": ({"gradient_checkpointing": True}, {}, 1e-5),
    "LoRA": ({}, {"lora": LORA}, 1e-5),
    "g2rl": ({}, {"method": "g2rl"}, 1e-4),  # stretches differences of 1e-6 in a group to [0, 1]
    "autocast": ({"bf16": True}, {}, 0.1),  # bfloat16 hidden states against float32 ones
}
"""Arguments of TRL, options of the trainer, and how far a reward may be from the CPU's in float32."""


def processes(function: Callable[..., Any], number: int, folder: Path, device: str, *arguments: Any) -> list[Any]:
    """`function(device, *arguments)` on each rank of new processes. A fork cannot use a GPU."""
    method = "spawn" if torch.cuda.is_available() else "forkserver"
    return run_ranks(function, number, folder, device, *arguments, start_method=method)


def replayed(device: str, folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Each way on a device: what `replay` brings back, on the CPU."""
    fields: dict[str, Any] = {"use_cpu": device == "cpu"}
    if dist.is_initialized():
        os.environ["LOCAL_RANK"] = "0"  # all ranks share the first GPU, which NCCL does not allow
        fields["ddp_backend"] = "gloo"
    found = {}
    for name in names:
        args, options, _ = WAYS[name]
        options = dict(options)
        if lora := options.pop("lora", None):
            options["peft_config"] = LoraConfig(**lora)
        torch.manual_seed(0)  # a new adapter draws its weights on the CPU
        result = replay(folder, fields | args, options)
        result["weights"] = {name: tensor.cpu() for name, tensor in result["weights"].items()}
        found[name] = result | {"vectors": result["vectors"].cpu()}
    return found


@pytest.fixture(scope="module")
def expected(device: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The CPU's results in float32, from a process that sees no GPU."""
    folder = tmp_path_factory.mktemp("cpu")
    exact = [name for name, (args, _, _) in WAYS.items() if "bf16" not in args]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        (found,) = processes(replayed, 1, folder, "cpu", folder, exact)
    return found


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """The largest absolute difference of vectors, rewards, alignments and weights."""
    weights = [(found["weights"][name] - tensor).abs().max() for name, tensor in expected["weights"].items()]
    largest = {
        "vectors": float((found["vectors"] - expected["vectors"]).abs().max()),
        "weights": float(torch.stack(weights).max()),
    }
    for name in ("reward", "alignment"):
        pairs = [
            (getattr(mine, name), getattr(theirs, name))
            for mine, theirs in zip(found["records"], expected["records"], strict=True)
        ]
        assert all((a is None) == (b is None) for a, b in pairs)
        largest[name] = max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=0.0)
    return largest


def assert_same_rollouts(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for mine, theirs in zip(found["records"], expected["records"], strict=True):
        for name in ("step", "problem_id", "group_index", "response", "verified", "well_formatted", "eligible"):
            assert getattr(mine, name) == getattr(theirs, name)


@pytest.mark.parametrize("name", WAYS)
def test_trainer_gives_the_cpus_records(device, expected, tmp_path, name, record_property):
    close = WAYS[name][2]
    (found,) = replayed(device, tmp_path, [name]).values()
    truth = expected.get(name, expected["own passes"])
    largest = differences(found, truth)
    record_property("differences", largest)
    assert_same_rollouts(found, truth)
    assert max(largest["reward"], largest["alignment"]) <= close
    assert max(largest["vectors"], largest["weights"]) <= close
    assert len({record.reward for record in found["records"]}) > 10


def test_two_processes_on_one_device_give_the_cpus_records(device, expected, tmp_path, record_property):
    names = ["own passes", "captured"]
    first, second = processes(replayed, 2, tmp_path, device, tmp_path, names)
    largest = {}
    for name in names:
        largest[name] = differences(first[name], expected[name])
        assert (first[name]["wrapper"], second[name]["records"]) == ("DistributedDataParallel", [])
        assert_same_rollouts(first[name], expected[name])
    record_property("differences", largest)
    assert max(value for each in largest.values() for value in each.values()) <= 1e-5


@pytest.mark.parametrize("args", [{}, {"bf16": True}], ids=["float32", "autocast"])
def test_states_of_sampling_give_the_vectors_of_the_models_own_loss(
    device,
    args,
    make_trainer: TrainerFactory,
    record_property,
):
    """Real generation on the device, against float64 autograd on the CPU before the first update."""
    model = load_embedded()[0]
    untouched = copy.deepcopy(model)
    trainer, records = make_trainer(
        kind=NotingTrainer, model=model, method="alignment-only", args={"use_cpu": device == "cpu", **args}
    )
    assert trainer._states.come_from_sampling()
    trainer.train()
    assert trainer.model.device.type == device
    sequences, means = zip(*trainer.means, strict=True)
    distance = largest_distance(torch.stack(means), own_means(untouched, sequences))
    record_property("relative distance", distance)
    assert len(records) == 32
    assert distance <= (0.2 if args else 1e-4)


def test_scores_are_the_cpus(device, record_property):
    model, tokenizer = load_embedded()
    groups = [group_of(each, written(each), answer=each.answer) for each in load_arithmetic("train")[:4]]
    with Verifier(num_workers=1) as judge:
        truth = GARScorer(model, tokenizer, verifier=judge).score(groups)
        scores = GARScorer(copy.deepcopy(model).to(device), tokenizer, verifier=judge).score(groups)
    pairs = list(zip(scores, truth, strict=True))
    assert [(a.status, a.signal, a.eligible) for a, _ in pairs] == [(b.status, b.signal, b.eligible) for _, b in pairs]
    largest = max(abs(a.reward - b.reward) for a, b in pairs)
    record_property("reward", largest)
    assert largest <= 1e-5
    assert len({score.reward for score in scores}) > 10


def sharded_means(device: str) -> dict[str, torch.Tensor]:
    """The vectors of a model that one rank holds as shards, by NCCL on a GPU."""
    if device == "cuda":
        dist.destroy_process_group()
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    found = {}
    for wrapping in WRAPPINGS:
        model = shard(tiny("Qwen3", tie_word_embeddings=False).to(device), wrapping)
        found[wrapping] = signal_means(find_parts(model).gathered(), SEQUENCES, SignalSettings()).cpu()
        # The head's gradient, as a step of training forms it, leaves nothing gathered behind.
        model(input_ids=torch.arange(6, device=device)[None]).logits.sum().backward()
        again = signal_means(find_parts(model), SEQUENCES, SignalSettings()).cpu()
        torch.testing.assert_close(again, found[wrapping], rtol=0, atol=1e-6)
    return found


def test_vectors_of_a_model_in_shards_are_those_of_the_whole_one(device, tmp_path, record_property):
    truth = signal_means(find_parts(tiny("Qwen3", tie_word_embeddings=False)), SEQUENCES, SignalSettings())
    (found,) = processes(sharded_means, 1, tmp_path, device)
    assert set(found) == set(WRAPPINGS)
    largest = {wrapping: float((means - truth).abs().max()) for wrapping, means in found.items()}
    record_property("differences", largest)
    assert max(largest.values()) <= 1e-5
