"""Hashes that tell one model and one tokenizer from another, wherever they lie."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from gar.models.embedded import load_embedded
from gar.scoring.identity import tokenizer_hash, weights_hash


def test_weights_hash_is_that_of_the_weights_not_of_the_object():
    first, second = load_embedded()[0], load_embedded()[0]
    assert weights_hash(first) == weights_hash(second)
    assert weights_hash(first) != weights_hash(second.to(torch.bfloat16))


def test_weights_hash_sees_a_step_of_training():
    model, _ = load_embedded()
    before = weights_hash(model)
    model(input_ids=torch.tensor([[3, 4, 5]]), labels=torch.tensor([[3, 4, 5]])).loss.backward()
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    assert weights_hash(model) != before


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


def test_weights_hash_sees_an_adapter():
    model, _ = load_embedded()
    before = weights_hash(model)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    fresh = weights_hash(adapted)
    assert fresh != before
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.add_(1e-3)
    assert weights_hash(adapted) != fresh


def test_tokenizer_hash_sees_the_vocabulary_and_the_chat_template():
    (_, first), (_, second) = load_embedded(), load_embedded()
    assert tokenizer_hash(first) == tokenizer_hash(second)
    second.chat_template = "{{ messages }}"
    assert tokenizer_hash(first) != tokenizer_hash(second)
    first.add_tokens(["<new>"])
    assert tokenizer_hash(first) != tokenizer_hash(load_embedded()[1])
