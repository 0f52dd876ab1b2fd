"""GAR's reward manager in verl's own agent loop and reward workers. `test_verl_conformance.py` has a whole step."""

from types import SimpleNamespace

import pytest
import ray
from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.utils.import_utils import load_class_from_fqn

from gar.integrations.verl.reward import GarRewardManager
from gar.integrations.verl.settings import AGENT_LOOP_MANAGER
from tests.engines.verl.workers import compose_config, trajectory

pytestmark = pytest.mark.filterwarnings("ignore:::(?!gar).*")  # of verl and what it stands on


TURNS = [("3+4=8", 1), ("<answer>7</answer>", 0)]
"""The policy answers wrong, and a tool right."""


def test_agent_loop_sends_the_policys_mask_to_the_reward_manager(tied):
    config, tokenizer = compose_config(tied, "gar.verify.format=none"), AutoTokenizer.from_pretrained(tied)
    manager = GarRewardManager(config, tokenizer, compute_score=None)
    agents = load_class_from_fqn(AGENT_LOOP_MANAGER)(config, None)

    class Worker(agents.agent_loop_workers_class.__ray_metadata__.modified_class):
        def __init__(self):  # without the servers that verl's starts
            self.processor, self.mm_processor_kwargs = None, {}
            score = SimpleNamespace(remote=manager.run_single)
            self.reward_loop_worker_handles = [SimpleNamespace(compute_score=score)]

    turns = [(tokenizer.encode(text), own) for text, own in TURNS]
    output = AgentLoopOutput(
        prompt_ids=tokenizer.encode("3+4="), response_ids=[token for ids, _ in turns for token in ids],
        response_mask=[own for ids, own in turns for _ in ids], metrics={},
    )  # fmt: skip
    manager.loop.run_until_complete(Worker()._compute_score([output], {"reward_model": {"ground_truth": "7"}}))
    assert output.extra_fields.pop("reward_extra_info")["status"] == "wrong"
    assert output.extra_fields == {}


@pytest.mark.usefixtures("cluster")
def test_verls_reward_worker_asks_a_grader_in_its_own_processes(tied):
    """The verifier starts its workers in a Ray actor too, where Ray has the main module."""
    config = compose_config(tied, "+gar.verify.verifier=tests.integrations.graders:answers_an_even_digit")
    worker = ray.remote(RewardLoopWorker).remote(config)
    tokenizer = AutoTokenizer.from_pretrained(tied)
    for answer, status in (("4", "ok"), ("3", "wrong")):
        ids = tokenizer.encode(f"<answer> {answer} </answer><eos>")
        found = ray.get(worker.compute_score.remote(trajectory(tokenizer.encode("3+4="), ids, answer)))
        assert found["reward_extra_info"]["status"] == status
