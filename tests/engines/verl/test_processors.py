"""A model with a processor of images, on text alone: its position ids have several rows."""

import importlib.util
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed: these tests run in an environment of its own", allow_module_level=True)

from transformers import Qwen3VLConfig, Qwen3VLModel
from verl.utils import tensordict_utils as tu
from verl.utils.import_utils import load_class_from_fqn

from gar.integrations.verl.exchange import MEANS, REQUEST
from gar.integrations.verl.transfer import anchor_batch, has_several_position_rows, read_means
from gar.rules import AGENT_LOOP_MANAGER
from gar.sequences import TokenSequence
from tests.engines.verl.workers import PLAIN, autograd_mean, compose_config, make_batch, make_engine, make_sequences

pytestmark = [pytest.mark.usefixtures("group"), pytest.mark.filterwarnings("ignore:::(?!gar).*")]


@pytest.fixture
def vision(models: dict[str, Path]) -> Path:
    return models["vision"]


@pytest.fixture
def processor(vision: Path) -> Any:
    """As verl binds the model's method to one (`hf_processor`)."""
    made = SimpleNamespace(config=Qwen3VLConfig.from_pretrained(vision))
    made.get_rope_index = MethodType(Qwen3VLModel.get_rope_index, made)
    return made


def test_anchors_have_the_position_ids_that_verl_gives_text(vision, processor):
    agents = load_class_from_fqn(AGENT_LOOP_MANAGER)(compose_config(vision), None)
    worker = object.__new__(agents.agent_loop_workers_class.__ray_metadata__.modified_class)
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


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
def test_engine_means_of_text_equal_autograd(vision, packed):
    engine = make_engine(vision, packed=packed)
    sequences = make_sequences()
    rows = [torch.arange(len(ids)).expand(4, -1) for ids, *_ in sequences]
    batch = make_batch(sequences, packed=packed)
    batch["position_ids"] = tu.nested_tensor_from_tensor_list(rows)
    expected = torch.stack([autograd_mean(vision, sequence) for sequence in sequences])
    whole = [(ids, n, torch.ones_like(mask), n + 2, n + 6) for ids, n, mask, *_ in sequences[:2]]
    anchors = [
        TokenSequence(context_ids=ids[:n].tolist(), ids=ids[n:].tolist(), positions=range(2, 6)) for ids, n, *_ in whole
    ]
    asked = {"use_remove_padding": packed, "temperature": 1.0, "max_token_len_per_gpu": 64, REQUEST: PLAIN}
    with engine.eval_mode():
        found = read_means(engine.infer_batch(batch)["model_output"][MEANS])
        output = engine.infer_batch(anchor_batch(anchors, 1, several_position_rows=True, **asked))["model_output"]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert expected.norm(dim=-1).max() > 0.1
    expected = torch.stack([autograd_mean(vision, sequence) for sequence in whole])
    torch.testing.assert_close(read_means(output[MEANS]), expected, rtol=1e-5, atol=1e-6)
