"""The seven groups of `tests/conformance` through slime's hooks, on Megatron's GPTModel with the embedded weights.

Two data-parallel ranks hold parts of each group. `tests/engines/slime_standin.py` stands in for slime.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conformance.expectation import check_engine, check_numbers
from tests.conformance.groups import make_rollouts
from tests.engines.rollouts import make_arguments, make_samples
from tests.support.ranks import run_ranks

pytest.importorskip("megatron.core", reason="Megatron is not installed: make test-engines installs it and runs this")
pytestmark = pytest.mark.dist

WAYS: dict[str, dict[str, Any]] = {
    "rewards": {"gar": {}, "rewards_normalization": False},
    "advantages": {"gar": {"advantage": {"ddof": None, "eps": None}}},  # slime's own rule
    "paper": {"gar": {}},
}


def through_slime() -> dict[str, Any]:
    """What this rank trains on in each way, and how far its hidden states are from Hugging Face's."""
    from megatron.core import mpu

    from gar.integrations.slime import convert_samples, on_megatron_init, postprocess
    from gar.models.embedded import load_embedded
    from tests.engines.megatron.policy import build_qwen3, hidden_states, redirect_cuda
    from tests.engines.slime_standin import Sample, install, split_by_data_parallel_rank

    model, tokenizer = load_embedded()
    redirect_cuda()
    install(tokenizer)
    mpu.initialize_model_parallel()
    on_megatron_init(make_arguments())
    built = build_qwen3(model)
    sequence = make_rollouts()[0].sequence
    with torch.no_grad():
        expected = model.model(input_ids=torch.tensor([[*sequence.context_ids, *sequence.ids]])).last_hidden_state
    error = (hidden_states(built.module, sequence) - expected[0]).abs().max() / expected.abs().max()
    found: dict[str, Any] = {"hidden error": float(error)}
    rank, num_ranks = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
    for name, changes in WAYS.items():
        args = make_arguments(**changes, vocab_size=36)
        share = split_by_data_parallel_rank(convert_samples(args, make_samples(Sample)), num_ranks)[rank]
        postprocess(args, 0, share)
        found[name] = [float(advantages[0]) for advantages in share["advantages"]]
    return found


def test_slime_gives_the_expected_rewards_and_its_own_or_the_papers_advantages(tmp_path: Path):
    ranks = run_ranks(through_slime, 2, tmp_path)
    assert all(found["hidden error"] < 1e-5 for found in ranks)
    places = range(len(make_rollouts()))
    joined = {name: [ranks[i % 2][name][i // 2] for i in places] for name in WAYS}
    check_engine(
        "slime",
        version=f"stand-in of slime 0.3.1 on Megatron {version('megatron-core')}",
        rewards=joined["rewards"],
        advantages=joined["advantages"],
    )
    check_numbers("paper", joined["rewards"], joined["paper"])
