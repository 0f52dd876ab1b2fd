"""A tiny Qwen3 with random weights and a word-level tokenizer: real `generate`, milliseconds."""

from string import ascii_letters

import pytest
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from tests.support.tiny import tiny_qwen3, word_tokenizer

WORDS = ["<pad>", "<eos>", "<turn>", "<unk>", "<think>", "</think>", *"0123456789", *"+-*=.:", *ascii_letters]


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer(WORDS, padding_side="right")


@pytest.fixture
def model() -> Qwen3ForCausalLM:
    return tiny_qwen3(
        WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        initializer_range=0.4, pad_token_id=None,
    )  # fmt: skip
