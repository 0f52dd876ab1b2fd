"""Hashes that tell one model and one tokenizer from another, wherever they lie."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from gar.models.embedded import load_embedded
from gar.scoring.identity import tokenizer_hash, weights_hash


def test_weights_hash_is_that_of_the_weights_not_of_the_object():
    first, second = load_embedded()[0], load_embedded()[0]
    before = weights_hash(first)
    assert before == weights_hash(second) != weights_hash(second.to(torch.bfloat16))
    adapted = get_peft_model(first, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    fresh = weights_hash(adapted)
    with torch.no_grad():
        next(weight for name, weight in adapted.named_parameters() if "lora_B" in name).add_(1e-3)
    assert len({before, fresh, weights_hash(adapted)}) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_hash_sees_one_value_and_an_exchange_of_two(dtype):
    model = torch.nn.Linear(64, 64, dtype=dtype)
    seen = {weights_hash(model)}
    row = model.weight.data[1]
    row[5] = torch.nextafter(row[5], row[5] + 1)
    seen.add(weights_hash(model))
    row[[7, 9]] = row[[9, 7]]
    seen.add(weights_hash(model))
    assert len(seen) == 3


def test_tokenizer_hash_sees_the_vocabulary_and_the_chat_template():
    (_, first), (_, second) = load_embedded(), load_embedded()
    assert tokenizer_hash(first) == tokenizer_hash(second)
    second.chat_template = "{{ messages }}"
    assert tokenizer_hash(first) != tokenizer_hash(second)
    first.add_tokens(["<new>"])
    assert tokenizer_hash(first) != tokenizer_hash(load_embedded()[1])
