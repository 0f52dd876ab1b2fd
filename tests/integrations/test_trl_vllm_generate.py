"""`generate` by a stub of vLLM, on one and on two ranks. `make test-vllm` has the same with vLLM."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from gar.errors import DataError, ModelError
from gar.integrations.trl.sampling import VllmSample, mean_ratio, sample_on_main
from gar.models.embedded import load_embedded
from gar.models.generate import Sampling, generate_responses
from gar.response import Response
from tests.support.errors import raises
from tests.support.ranks import run_ranks

PROMPTS = [[3, 4], [5], [6, 7, 8], [9], [4]]
END = 1


class StubVllm:
    """TRL's `VLLMGeneration` with a model that writes the sum of its prompt, a digit by the seed, and an end token."""

    mode, enable_sleep_mode, _llm_weights_sleeping = "colocate", True, True

    def __init__(self, shared: int = 1):
        self.accelerator, self.tensor_parallel_size, self.llm = Accelerator(cpu=True), shared, self
        self.calls: list[str] = []
        self.logprob = -1.0
        self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=11))

    def sync_weights(self) -> None:
        self.calls.append("weights")
        self._llm_weights_sleeping = False

    def wake_up(self, tags: list[str]) -> None:
        self.calls += tags

    def sleep(self, level: int) -> None:
        self.calls.append("sleep")

    def generate(self, prompts: list[dict[str, list[int]]], params: list[Any], use_tqdm: bool) -> list[Any]:
        self.calls.append(f"{len(prompts)} prompts")
        return [self._output(prompt["prompt_token_ids"], each) for prompt, each in zip(prompts, params, strict=True)]

    def _output(self, prompt: list[int], params: Any) -> Any:
        assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.5, 0.9, 0, 8)
        assert (params.n, params.stop_token_ids, params.ignore_eos) == (1, [END], True)
        ids = [sum(prompt) % 30 + 3, params.seed % 10 + 3, *[END] * (len(prompt) > 1)]
        logprobs = [{token: SimpleNamespace(logprob=self.logprob)} for token in ids]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=logprobs)])


def sampled(vllm: Any, seen: list[VllmSample] | None = None) -> list[list[Response]]:
    """Two responses to each prompt, in batches of four."""
    model, tokenizer = load_embedded()
    sampling = Sampling(num_samples=2, max_new_tokens=8, temperature=0.5, top_p=0.9, batch_size=4, seed=3)
    return sample_on_main(lambda: generate_responses(model, tokenizer, PROMPTS, sampling), model, vllm, seen)


def seen_on_rank(shared: int) -> tuple[list[list[Response]], list[str], list[VllmSample]]:
    sys.modules["vllm"] = stub_module()
    vllm, seen = StubVllm(shared), list[VllmSample]()
    return sampled(vllm, seen), vllm.calls, seen


def stub_module() -> ModuleType:
    module: Any = ModuleType("vllm")
    module.SamplingParams = SimpleNamespace
    return module


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> StubVllm:
    monkeypatch.setitem(sys.modules, "vllm", stub_module())
    return StubVllm()


def test_responses_are_those_of_vllm_and_it_sleeps_afterwards(one):
    state = torch.get_rng_state()
    groups = sampled(one)
    assert torch.equal(torch.get_rng_state(), state)
    assert [group[0].ids[0] for group in groups] == [sum(prompt) + 3 for prompt in PROMPTS]
    assert [group[0].truncated for group in groups] == [len(prompt) == 1 for prompt in PROMPTS]
    assert len({response.ids[1] for group in groups for response in group}) > 3
    assert one.calls == ["weights", "kv_cache", "4 prompts", "4 prompts", "2 prompts", "sleep"]


@pytest.mark.dist
@pytest.mark.parametrize(("shared", "shares"), [(1, (2, 2, 1)), (2, (4, 4, 2))])
def test_ranks_share_the_prompts_and_get_the_responses_of_one(one, tmp_path: Path, shared, shares):
    """Ranks that share a vLLM ask it for the same."""
    drawn: list[VllmSample] = []
    expected = sampled(one, drawn)
    for found, calls, seen in run_ranks(seen_on_rank, 2, tmp_path, shared):
        assert (found, seen) == (expected, drawn)
        assert calls == ["weights", "kv_cache", *(f"{number} prompts" for number in shares), "sleep"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token_truncate", [1.0, 0.5, 3.0]),
        ("token_mask", [1.0, 0.5, 0.0]),
        ("sequence_truncate", [2.5]),
        ("sequence_mask", [2.5]),
    ],
)
def test_the_mean_ratio_is_that_of_trl(one, mode, expected):
    """vLLM's log-probabilities are the policy's, but for ratios of 1, 1/2 and 5 (above the bound of 3)."""
    model, _ = load_embedded()
    ids, temperature = [3, 4, 5, 6, 7], 0.5
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0, 1:4]
    exact = torch.log_softmax(logits.double() / temperature, dim=-1)[range(3), ids[2:]]
    theirs = (exact - torch.tensor([1, 0.5, 5]).log()).tolist()
    sample = VllmSample(prompt_ids=ids[:2], ids=ids[2:], log_probs=theirs)
    arguments: Any = SimpleNamespace(
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=None,
        vllm_importance_sampling_clip_max=3.0,
        temperature=temperature,
        bf16=False,
    )
    assert mean_ratio(model, [sample], arguments) == pytest.approx(sum(expected) / len(expected), abs=1e-5)


def test_nan_is_an_error_and_no_response(one):
    one.logprob = float("nan")
    with raises(ModelError, "not-finite"):
        sampled(one)
    assert one.calls[-1] == "sleep"


def test_a_prompt_that_vllm_would_cut_the_response_of_is_an_error(one):
    one.llm_engine.model_config.max_model_len = 10
    with raises(DataError, "long-prompt", "10", "vllm_max_model_length"):
        sampled(one)
