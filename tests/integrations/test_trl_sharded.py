"""An evaluation of a model that two ranks hold in shards (`fully_shard`) is that of the whole model on one process.

`tests/engines/deepspeed` has ZeRO-3, with real DeepSpeed.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import PartialState
from torch.distributed.tensor import DTensor

from gar.data.arithmetic import load_arithmetic
from gar.errors import ModelError
from gar.evaluation.evaluate import evaluate_policy
from gar.integrations.trl.sharded import sample_on_main
from gar.models.embedded import load_embedded
from gar.settings import EvaluateSettings
from tests.integrations.replay import AnswerVerifier
from tests.models.test_sharded import shard
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.dist

SETTINGS = EvaluateSettings(num_samples=3, pass_at_k=(1,), batch_size=4)


def evaluation(model: Any, tokenizer: Any) -> Any:
    verifier: Any = AnswerVerifier()
    problems = load_arithmetic("test")[:4]
    return evaluate_policy(model, tokenizer, problems, verifier, SETTINGS, seed=5, max_new_tokens=40)


def measured(wrapping: str) -> dict[str, Any]:
    """What a rank gets, and what becomes of work that fails, on a model that is sharded."""
    PartialState(cpu=True)
    model, tokenizer = load_embedded()
    shard(model, wrapping)
    model.model.layers[0].train()
    state = torch.get_rng_state()
    outcome: dict[str, Any] = {"sharded": all(isinstance(parameter, DTensor) for parameter in model.parameters())}
    outcome["result"] = sample_on_main(lambda: evaluation(model, tokenizer), model)
    outcome["random state"] = torch.equal(torch.get_rng_state(), state)
    outcome["training"] = model.training, model.model.layers[0].training
    outcome["nothing sampled"] = sample_on_main(lambda: "measured before", model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    try:
        sample_on_main(lambda: evaluation(model, tokenizer), model)
    except (ModelError, SystemExit) as error:
        outcome["failed"] = type(error)
    outcome["generate"] = "generate" in vars(model)
    return outcome


def test_evaluation_of_a_sharded_model_is_that_of_the_whole_one(tmp_path: Path):
    model, tokenizer = load_embedded()
    expected = evaluation(model.eval(), tokenizer)
    assert len({response.num_tokens for group in expected.groups for response in group.responses}) > 1
    ranks = run_ranks(measured, 2, tmp_path, "gathered after use")
    for rank in ranks:
        assert rank["result"] == expected
        assert rank["random state"]
        assert rank["sharded"]
        assert rank["training"] == (False, True)
        assert rank["nothing sampled"] == "measured before"
        assert not rank["generate"]
    assert [rank["failed"] for rank in ranks] == [ModelError, SystemExit]
