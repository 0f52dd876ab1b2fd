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
from gar.integrations.trl.sampling import sample_on_main
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


def measured() -> dict[str, Any]:
    """Results on a rank of work that succeeds, samples nothing, or fails, on a sharded model."""
    PartialState(cpu=True)
    model, tokenizer = load_embedded()
    shard(model, "gathered after use")
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    model.model.layers[0].train()
    state = torch.get_rng_state()
    outcome: dict[str, Any] = {"result": sample_on_main(lambda: evaluation(model, tokenizer), model)}
    assert torch.equal(torch.get_rng_state(), state)
    assert (model.training, model.model.layers[0].training) == (False, True)
    outcome["nothing sampled"] = sample_on_main(lambda: "measured before", model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    try:
        sample_on_main(lambda: evaluation(model, tokenizer), model)
    except (ModelError, SystemExit) as error:
        outcome["failed"] = type(error)
    assert "generate" not in vars(model)
    return outcome


@pytest.mark.slow
def test_evaluation_of_a_sharded_model_is_that_of_the_whole_one(tmp_path: Path):
    model, tokenizer = load_embedded()
    expected = evaluation(model.eval(), tokenizer)
    assert len({response.num_tokens for group in expected.groups for response in group}) > 1
    found = {"result": expected, "nothing sampled": "measured before"}
    ranks = run_ranks(measured, 2, tmp_path)
    assert ranks == [found | {"failed": kind} for kind in (ModelError, SystemExit)]
