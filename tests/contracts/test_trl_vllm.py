"""TRL's vLLM modes, with vLLM itself replaced at its border: the log-probability pass is there, and GAR uses it.

TRL's own code runs from the push of the weights to the importance ratios. A model replaces vLLM: it takes the pushed
weights, answers as `tests/integrations/replay.py` plans, and returns log-probabilities of its answers.
"""

import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from trl import GRPOConfig
from trl.generation import vllm_generation

from gar.data.arithmetic import load_arithmetic
from gar.models.embedded import load_embedded
from tests.integrations.conftest import SMALL
from tests.integrations.replay import NUM_RESPONSES, PLAIN_STEPS, PLAN, AnswerVerifier, NotingTrainer, response_text

PROBLEMS = load_arithmetic("train")[:64]


class Sampler:
    """The model behind both modes."""

    def __init__(self) -> None:
        self._model, self._tokenizer = load_embedded()
        self._problems = {tuple(self._tokenizer(problem.prompt)["input_ids"]): problem for problem in PROBLEMS}
        self.pushed: Counter[str] = Counter()
        self.num_calls = 0

    def take_weights(self, named: Any) -> None:
        own = dict(self._model.named_parameters())
        for name, tensor in named:
            own[name].data.copy_(tensor)
            self.pushed[name] += 1

    @torch.no_grad()
    def answers(self, prompts: list[list[int]]) -> list[tuple[list[int], list[float]]]:
        """For each prompt of a batch, with repeats: token ids, and their log-probabilities."""
        found = []
        for place, prompt in enumerate(prompts):
            text = response_text(self._problems[tuple(prompt)], place, step=self.num_calls)
            ids = [*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id]
            logits = self._model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
            log_probs = logits.log_softmax(-1)[torch.arange(len(ids)), ids]
            found.append((ids, log_probs.tolist()))
        self.num_calls += 1
        return found


def fake_client(sampler: Sampler) -> Any:
    """The client of a vLLM server."""

    class Client:
        def __init__(self, base_url: str, group_port: int, connection_timeout: float): ...

        def init_communicator(self, device: Any) -> None: ...

        def reset_prefix_cache(self) -> None: ...

        def get_server_info(self) -> dict[str, Any]:
            return {"model_config": {"logprobs_mode": "processed_logprobs"}}

        def update_named_params(self, metadata: list, named: Any) -> None:
            sampler.take_weights(named)

        def generate(self, prompts: list[list[int]], n: int, **_: Any) -> dict[str, list]:
            answers = sampler.answers([prompt for prompt in prompts for _ in range(n)])
            return {
                "prompt_ids": prompts,
                "completion_ids": [ids for ids, _ in answers],
                "logprobs": [[[value] for value in values] for _, values in answers],
            }

    return Client


def fake_llm(sampler: Sampler) -> Any:
    """vLLM's engine in the trainer's own process."""

    class LLM:
        def __init__(self, **_: Any) -> None:
            runner = SimpleNamespace(model=SimpleNamespace(load_weights=sampler.take_weights))
            worker = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
            self.llm_engine = SimpleNamespace(model_executor=worker)

        def reset_prefix_cache(self) -> None: ...

        def generate(self, prompts: list[dict], sampling_params: Any, use_tqdm: bool) -> list[Any]:
            assert sampling_params.n == 1
            outputs = []
            for ids, values in sampler.answers([prompt["prompt_token_ids"] for prompt in prompts]):
                said = [{i: SimpleNamespace(rank=1, logprob=value)} for i, value in zip(ids, values, strict=True)]
                written = [SimpleNamespace(token_ids=ids, logprobs=said)]
                outputs.append(SimpleNamespace(prompt_token_ids=None, outputs=written))
            return outputs

    return LLM


def train(folder: Path, **args: Any) -> tuple[NotingTrainer, Sampler]:
    """Two steps of a trainer, with a sampler in vLLM's place."""
    sampler = Sampler()
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ):  # TRL sets ranks in the environment
        patch.setattr(vllm_generation, "is_vllm_available", lambda: True)
        patch.setattr(vllm_generation, "VLLMClient", fake_client(sampler))
        patch.setattr(vllm_generation, "LLM", fake_llm(sampler), raising=False)
        patch.setattr(vllm_generation, "SamplingParams", SimpleNamespace, raising=False)
        model, tokenizer = load_embedded()
        chosen = SMALL | PLAIN_STEPS | {"per_device_train_batch_size": NUM_RESPONSES, "use_vllm": True} | args
        options: dict[str, Any] = {
            "train_dataset": PROBLEMS, "verifier": AnswerVerifier(), "processing_class": tokenizer,
            "args": GRPOConfig(output_dir=str(folder), **chosen),
        }  # fmt: skip
        trainer = NotingTrainer(model, **options)
        trainer.train()
    return trainer, sampler


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> NotingTrainer:
    """Without the correction TRL makes no pass."""
    return train(tmp_path_factory.mktemp("own"), vllm_importance_sampling_correction=False)[0]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["server", "colocate"])
def test_vllms_correction_makes_the_pass_that_vectors_come_from(own, tmp_path, mode):
    """Without it, GAR passes over the responses that need a vector, and always over the anchors."""
    assert (own.num_captured, own.rows["TRL"]) == (0, [])
    assert sum(own.rows["GAR"]) > own.num_needed > 16
    trainer, sampler = train(tmp_path, vllm_mode=mode)
    assert trainer.num_captured == sum(trainer.rows["TRL"]) == len(PLAN) * NUM_RESPONSES
    assert trainer.num_needed == own.num_needed == sum(own.rows["GAR"]) - sum(trainer.rows["GAR"])
    for found, expected in zip(trainer.vectors, own.vectors, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)  # the second step's weights differ by rounding
    assert set(sampler.pushed.values()) == {len(PLAN)}  # the weights of each step, before its rollouts
    name = "sampling/importance_sampling_ratio/mean"
    ratios = [row[name] for row in trainer.state.log_history if name in row]
    assert ratios == [pytest.approx(1.0, abs=1e-4)] * len(PLAN)
