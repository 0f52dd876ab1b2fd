"""Vectors from verl's FSDP engine, on one and on two ranks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from verl.utils import tensordict_utils as tu

from gar.errors import ModelError
from gar.integrations.verl.exchange import MEANS, REQUEST
from gar.integrations.verl.transfer import anchor_batch, read_means
from tests.engines.verl.workers import COMMON, PLAIN, make_batch, make_engine, make_sequences
from tests.support.autograd import own_means
from tests.support.errors import raises
from tests.support.ranks import run_ranks

pytestmark = [pytest.mark.usefixtures("group"), pytest.mark.filterwarnings("ignore:::(?!gar).*")]

TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}  # float32 on both sides, in different orders


def run(engine: Any, batch: Any) -> dict[str, Any]:
    with engine.eval_mode():
        return engine.infer_batch(batch)["model_output"]


def means_of(engine: Any, sequences: Any, **settings: Any) -> Tensor:
    return read_means(run(engine, make_batch(sequences, **settings))[MEANS])


@pytest.mark.parametrize("kind", ["tied", "untied", "vision"])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_engine_means_equal_autograd(kind, packed, models):
    """Of responses, and of anchors under a model of images, which has several rows of position ids."""
    folder, sequences = models[kind], make_sequences()
    batch = make_batch(sequences, packed=packed)
    if kind == "vision":
        sequences = [replace(sequence, positions=range(1, 9), mask=None) for sequence in sequences]
        batch = anchor_batch(sequences, 1, several_position_rows=True, **COMMON, use_remove_padding=packed)
    found = read_means(run(make_engine(folder, packed=packed), batch)[MEANS])
    model = (AutoModelForImageTextToText if kind == "vision" else AutoModelForCausalLM).from_pretrained(folder)
    scored = [i for i, sequence in enumerate(sequences) if sequence.positions]
    expected = own_means(model, [sequences[i] for i in scored]).float()
    assert bool((expected.norm(dim=-1) > 0.1).all())
    torch.testing.assert_close(found[scored], expected, **TOLERANCE)
    assert kind == "vision" or not found[2].any()  # it has no span


def test_engine_leaves_log_probabilities_and_training_as_they_are(tied):
    engine = make_engine(tied)
    batch = make_batch(make_sequences(), calculate_entropy=True)
    asked = run(engine, batch)
    tu.pop(batch, REQUEST)
    plain = run(engine, batch)
    assert MEANS in asked
    assert set(plain) == {"log_probs", "entropy"}  # the reference pass: no request, no vector
    for name in plain:
        assert torch.equal(asked[name].values(), plain[name].values())
    seen = []

    def loss(model_output: dict[str, Any], **_: Any) -> tuple[Tensor, dict]:
        seen.append(set(model_output))
        return model_output["log_probs"].values().mean(), {}

    with engine.train_mode():
        engine.train_batch(make_batch(make_sequences()), loss_function=loss)
    assert seen
    assert all(names == {"log_probs"} for names in seen)


def test_engine_obeys_the_request_and_rejects_logits_that_are_not_the_heads(tied):
    engine = make_engine(tied)
    plain = means_of(engine, make_sequences())
    for signal in ({"signal": "hidden"}, {"keep_fraction": 0.3}, {"temperature": 2.0}):
        assert not torch.allclose(plain, means_of(engine, make_sequences(), **{REQUEST: PLAIN | signal}))

    def soften(module: Any, args: Any, output: Any) -> Any:
        output.logits = 30 * torch.tanh(output.logits / 30)
        return output

    engine.module.register_forward_hook(soften)
    with raises(ModelError):
        means_of(engine, make_sequences())


def one_of_two_ranks(folders: list[Path]) -> list[Tensor]:
    """Means of this rank's half of the sequences, on sharded models."""
    found = []
    mine = make_sequences(6)[dist.get_rank() :: 2]
    for folder in folders:
        engine = make_engine(folder)
        assert all(isinstance(parameter, DTensor) for parameter in engine.module.parameters())
        found.append(means_of(engine, mine))
        torch.testing.assert_close(means_of(engine, mine, max_token_len_per_gpu=512), found[-1], **TOLERANCE)
    return found


@pytest.mark.dist
def test_engine_on_two_ranks_equals_one(tmp_path, models):
    folders = [models["tied"], models["untied"]]
    halves = run_ranks(one_of_two_ranks, 2, tmp_path / "ranks", folders)
    for k, folder in enumerate(folders):
        whole = means_of(make_engine(folder), make_sequences(6))
        for rank in range(2):
            torch.testing.assert_close(halves[rank][k], whole[rank::2], **TOLERANCE)
