"""The device of a command, and hashes that identify a model and a tokenizer."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from gar.errors import ConfigError
from gar.models.embedded import load_embedded
from gar.scoring.model import choose_device, tokenizer_hash, weights_hash
from tests.support.errors import raises


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
