"""What goes into verl's queue and to its workers, with stand-ins for both: verl itself is not installed here."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gar.integrations.verl.exchange import END, START
from gar.response import TokenSequence
from tests.engines.slime_standin import install_modules


@pytest.fixture
def transfer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, and as its `tq` a queue that holds scores of three responses and keeps what is put."""
    before = torch.nested.as_nested_tensor(
        [torch.tensor([0.0, 9.0]), torch.ones(1), torch.zeros(3)], layout=torch.jagged
    )
    masks = [torch.ones(2), torch.zeros(1), torch.tensor([1, 1, 0])]
    mask = torch.nested.as_nested_tensor([each.long() for each in masks], layout=torch.jagged)
    tensors = SimpleNamespace(
        get_tensordict=lambda fields, settings=None: fields, nested_tensor_from_tensor_list=lambda rows: rows
    )
    queue = {
        "kv_batch_get": lambda **_: {"rm_scores": before, "response_mask": mask},
        "kv_batch_put": lambda fields, **_: queue.update(fields),
    }
    modules: dict[str, Any] = {"verl": {}, "verl.utils": {"tensordict_utils": tensors}, "transfer_queue": queue}
    name = "gar.integrations.verl.transfer"
    for each in (*modules, name):
        monkeypatch.setitem(sys.modules, each, None)  # to be removed afterwards
    install_modules(modules)
    del sys.modules[name]
    return importlib.import_module(name), queue


def test_rewards_are_paid_on_the_last_token_that_the_policy_wrote(transfer: Any):
    module, queue = transfer
    module.write_rewards(["a", "b", "c"], "p", torch.tensor([0.5, 2.0, -0.6]))
    assert [row.tolist() for row in queue["rm_scores"].unbind()] == [[0, 0.5], [2.0], [0, pytest.approx(-0.6), 0]]
    assert queue[module.OUTCOME_SCORES][0].tolist() == [0.0, 9.0]


def test_anchors_are_cut_after_their_last_scored_token_and_filled_up(transfer: Any):
    module, _ = transfer
    sequences = [TokenSequence(context_ids=[1, 2], ids=[3, 4, 5, 6], positions=[1, 2])] * 3
    batch = module.anchor_batch(sequences, 2, several_position_rows=True)
    assert [row.tolist() for row in batch["input_ids"].unbind()] == [[1, 2, 3, 4, 5]] * 4
    assert [row.tolist() for row in batch["loss_mask"].unbind()] == [[1, 1, 1]] * 4
    assert [row.shape for row in batch["position_ids"]] == [(4, 5)] * 4
    assert (batch[START].tolist(), batch[END].tolist()) == ([3, 3, 3, 0], [5, 5, 5, 0])
