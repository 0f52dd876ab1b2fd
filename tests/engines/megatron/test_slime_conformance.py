"""The seven groups of `tests/conformance` through slime's hooks, on Megatron's GPTModel with the embedded weights.

Two data-parallel ranks, so that groups lie on both. slime's side is the stand-in of `tests/engines/slime_standin.py`.
"""

from importlib.metadata import version
from typing import Any

import pytest
import torch

from tests.conformance.expectation import (
    check_engine,
    check_numbers,
)
from tests.conformance.groups import make_rollouts
from tests.engines.rollouts import make_arguments, make_samples
from tests.support.ranks import run_ranks

pytest.importorskip("megatron.core", reason="Megatron is not installed: make test-engines installs it and runs this")
pytestmark = pytest.mark.dist

WAYS: dict[str, dict[str, Any]] = {
    "rewards": {"gar": {}, "rewards_normalization": False},
    "advantages": {"gar": {"advantage": {"ddof": None, "eps": None}}},  # slime's own
    "paper": {"gar": {}},
}

# What runs on each rank.


def through_slime() -> dict[str, Any]:
    """What this rank trains on: the rewards themselves, the advantages by slime's own rule, and by the paper's."""
    from megatron.core import mpu

    from gar.integrations.slime import convert_samples, on_megatron_init, postprocess
    from gar.models.embedded import embedded_path, load_embedded
    from tests.engines.megatron.policy import redirect_cuda
    from tests.engines.megatron.qwen3 import build_qwen3
    from tests.engines.slime_standin import Sample, install, split_by_data_parallel_rank

    model, tokenizer = load_embedded()
    redirect_cuda()
    install(tokenizer)
    mpu.initialize_model_parallel()
    on_megatron_init(make_arguments())
    built = build_qwen3(model)
    rank, num_ranks = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
    found = {"hidden error": hidden_error(built.module, model)}
    for name, changes in WAYS.items():
        args = make_arguments(**changes, hf_checkpoint=str(embedded_path()), vocab_size=36)
        share = split_by_data_parallel_rank(convert_samples(args, make_samples(Sample)), num_ranks)[rank]
        postprocess(args, 0, share)
        found[name] = [float(advantages[0]) for advantages in share["advantages"]]
    return found


def hidden_error(model: Any, source: Any) -> float:
    """Largest difference of what the head is given, between Megatron's model and Hugging Face's."""
    from tests.engines.megatron.policy import hidden_states

    sequence = make_rollouts()[0].sequence
    with torch.no_grad():
        expected = source.model(input_ids=torch.tensor([[*sequence.context_ids, *sequence.ids]])).last_hidden_state
    return float((hidden_states(model, sequence) - expected[0]).abs().max() / expected.abs().max())


# What is said of it.


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(through_slime, 2, tmp_path_factory.mktemp("slime"))


def joined(ranks: list[dict[str, Any]], name: str) -> list[float]:
    """A number per response, in the order of `make_rollouts`, from the ranks' shares."""
    return [ranks[i % len(ranks)][name][i // len(ranks)] for i in range(len(make_rollouts()))]


def test_megatron_runs_the_embedded_model(ranks):
    assert all(found["hidden error"] < 1e-5 for found in ranks)


def test_slime_gives_the_expected_rewards_and_advantages(ranks):
    check_engine(
        "slime",
        version=f"stand-in of slime 0.3.1 on Megatron {version('megatron-core')}",
        rewards=joined(ranks, "rewards"),
        advantages=joined(ranks, "advantages"),
    )


def test_slime_gives_the_paper_s_advantages_unless_told_otherwise(ranks):
    check_numbers("paper", joined(ranks, "rewards"), joined(ranks, "paper"))
