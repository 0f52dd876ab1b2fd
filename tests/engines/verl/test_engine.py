"""The vectors that come out of verl's own FSDP engine, on one and on two ranks."""

from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, Qwen3VLConfig, Qwen3VLModel
from verl.utils import tensordict_utils as tu
from verl.utils.import_utils import load_class_from_fqn

from gar.errors import ModelError
from gar.integrations.verl.exchange import MEANS, REQUEST
from gar.integrations.verl.transfer import anchor_batch, has_several_position_rows, read_means
from gar.rules import AGENT_LOOP_MANAGER
from gar.sequences import TokenSequence
from tests.engines.verl.workers import PLAIN, compose_config, make_batch, make_engine, make_sequences
from tests.support.autograd import own_means
from tests.support.errors import raises
from tests.support.ranks import run_ranks

pytestmark = [pytest.mark.usefixtures("group"), pytest.mark.filterwarnings("ignore:::(?!gar).*")]

TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}  # float32 on both sides, in another order


def run(engine: Any, batch: Any) -> dict[str, Any]:
    with engine.eval_mode():
        return engine.infer_batch(batch)["model_output"]


def means_of(engine: Any, sequences: Any, **settings: Any) -> Tensor:
    return read_means(run(engine, make_batch(sequences, **settings))[MEANS])


@pytest.mark.parametrize("kind", ["tied", "untied", "vision"])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_engine_means_equal_autograd(kind, packed, models):
    """Of text alone under a model of images, too: its position ids have several rows."""
    folder, sequences = models[kind], make_sequences()
    batch = make_batch(sequences, packed=packed)
    if kind == "vision":
        rows = [torch.arange(len(ids)).expand(4, -1) for ids in batch["input_ids"].unbind()]
        batch["position_ids"] = tu.nested_tensor_from_tensor_list(rows)
    found = read_means(run(make_engine(folder, packed=packed), batch)[MEANS])
    model = (AutoModelForImageTextToText if kind == "vision" else AutoModelForCausalLM).from_pretrained(folder)
    expected = own_means(model, [sequence for sequence in sequences if sequence.positions]).float()
    assert bool((expected.norm(dim=-1) > 0.1).all())
    torch.testing.assert_close(found[[0, 1, 3, 4]], expected, **TOLERANCE)
    assert not found[2].any()  # it has no span


def test_anchors_have_the_position_ids_that_verl_gives_text(models):
    agents = load_class_from_fqn(AGENT_LOOP_MANAGER)(compose_config(models["vision"]), None)
    worker = object.__new__(agents.agent_loop_workers_class.__ray_metadata__.modified_class)
    processor = SimpleNamespace(config=Qwen3VLConfig.from_pretrained(models["vision"]))
    processor.get_rope_index = MethodType(Qwen3VLModel.get_rope_index, processor)  # as verl binds it (`hf_processor`)
    anchors = [
        TokenSequence(context_ids=[5, 6, 7], ids=[8, 9, 10, 11], positions=range(1, 4)),
        TokenSequence(context_ids=[5], ids=[8, 9], positions=range(2)),
    ]
    for worker.processor in (processor, None, SimpleNamespace()):
        several = has_several_position_rows(worker.processor)
        assert several == (worker.processor is processor)
        batch = anchor_batch(anchors, 1, several_position_rows=several)
        for anchor, found in zip(anchors, batch["position_ids"].unbind(), strict=True):
            ids = torch.tensor([[*anchor.context_ids, *anchor.ids]])
            left = {"mm_token_type_ids": torch.zeros_like(ids)}  # by the processor, beside text too
            expected = worker._compute_position_ids(ids, torch.ones_like(ids), left)
            assert torch.equal(found, expected[0])


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
    """This rank's half of the sequences, on models that are sharded; the same for verl's two kinds of FSDP."""
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
