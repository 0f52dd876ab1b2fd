"""The engines, their devices, and hashes that identify a model and a tokenizer."""

import sys
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model

from gar.errors import ConfigError
from gar.evaluation.engines import load_engine, tokenizer_hash, weights_hash
from gar.evaluation.job import GenerateJob
from gar.models.device import choose_device
from gar.models.embedded import load_embedded
from gar.models.generate import Sampling
from gar.settings import ModelSettings
from tests.support.errors import raises

JOB = GenerateJob(model=ModelSettings(path="embedded"), benchmark=("arithmetic",))


@pytest.mark.parametrize("found", [None, "cuda", "mps"])
def test_choose_device_takes_the_accelerator_if_there_is_one(monkeypatch, found):
    accelerator = found and torch.device(found)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: accelerator)
    assert choose_device(None) == torch.device(found or "cpu")


def test_choose_device_rejects_a_device_that_is_not_there():
    for name in ("gpu", "cpu:x"):
        with raises(ConfigError, "device"):
            choose_device(name)


def test_weights_hash_depends_on_the_weights_alone():
    first, second = load_embedded()[0], load_embedded()[0]
    before = weights_hash(first)
    assert before == weights_hash(second) != weights_hash(second.to(torch.bfloat16))
    adapted = get_peft_model(first, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    fresh = weights_hash(adapted)
    with torch.no_grad():
        next(weight for name, weight in adapted.named_parameters() if "lora_B" in name).add_(1e-3)
    assert len({before, fresh, weights_hash(adapted)}) == 3
    for dtype in (torch.float32, torch.bfloat16):  # one value, and an exchange of two
        model = torch.nn.Linear(64, 64, dtype=dtype)
        seen, row = {weights_hash(model)}, model.weight.data[1]
        row[5] = torch.nextafter(row[5], row[5] + 1)
        seen.add(weights_hash(model))
        row[[7, 9]] = row[[9, 7]]
        assert len(seen | {weights_hash(model)}) == 3


def test_tokenizer_hash_sees_the_vocabulary_and_the_chat_template():
    first, second, third = (load_embedded()[1] for _ in range(3))
    assert tokenizer_hash(first) == tokenizer_hash(second)
    second.chat_template = "{{ messages }}"
    third.add_tokens(["<new>"])
    assert len({tokenizer_hash(tokenizer) for tokenizer in (first, second, third)}) == 3


def test_transformers_engine_repeats_itself_for_a_seed_and_is_greedy_at_temperature_0():
    engine = load_engine(JOB)
    model, tokenizer = load_embedded()
    prompts = [tokenizer(f"{number}+4*7=")["input_ids"] for number in range(5)]
    drawn = [engine.respond(prompts[:1] * 8, Sampling(max_new_tokens=30, temperature=1.0, seed=i)) for i in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({response.text for (response,) in drawn[0]}) > 1
    written = engine.respond(prompts, Sampling(max_new_tokens=30, temperature=0.0, seed=1))
    assert written == engine.respond(prompts, Sampling(max_new_tokens=30, temperature=0.0, top_p=0.5, seed=2))
    for prompt, (response,) in zip(prompts, written, strict=True):
        ids = torch.tensor([[*prompt, *response.ids]])
        with torch.no_grad():
            best = model(ids).logits[0, len(prompt) - 1 : -1].argmax(-1)
        assert best.tolist() == list(response.ids)


# vLLM is an extra: the part of its interface that we rely on, as its documentation states it.


class FakeLLM:
    def __init__(self, *, model: str, revision: str | None, dtype: str, seed: int) -> None:
        assert (dtype, seed) == ("auto", 0)
        self.model = model
        self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=512))

    def get_tokenizer(self) -> object:
        return load_embedded()[1]

    def generate(self, prompts: Sequence[dict], params: Sequence[object], *, use_tqdm: bool) -> list[SimpleNamespace]:
        assert not use_tqdm
        self.seen = (prompts, params)
        ends = [("stop", [30, 31, 6, 32, 1]), ("length", [31, 6])]
        return [
            SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, finish_reason=why)])
            for (why, ids), _, _ in zip(ends, prompts, params, strict=True)
        ]


def fake_params(*, n: int, temperature: float, top_p: float, max_tokens: int, seed: int) -> tuple:
    return n, temperature, top_p, max_tokens, seed


def test_vllm_engine_asks_for_what_vllm_gives(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=FakeLLM, SamplingParams=fake_params))
    engine = load_engine(JOB.model_copy(update={"backend": "vllm"}))
    (first,), (second,) = engine.respond([[3, 4], [5]], Sampling(max_new_tokens=7, temperature=0.5, top_p=0.9, seed=11))
    prompts, params = engine._llm.seen
    assert prompts == [{"prompt_token_ids": [3, 4]}, {"prompt_token_ids": [5]}]
    assert params == [(1, 0.5, 0.9, 7, 11), (1, 0.5, 0.9, 7, 12)]
    assert (first.truncated, second.truncated) == (False, True)
    assert first.ids == (30, 31, 6, 32, 1)
    assert first.text.endswith("</answer>")
    assert engine.context == 512
