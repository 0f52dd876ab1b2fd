"""A byte tokenizer and a random Qwen3 of two layers, for the scripts beside."""

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def tokenizer(**special: Any) -> PreTrainedTokenizerFast:
    """One token a byte, an end token (256) and a pad token (257)."""
    vocab = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>", **special)


def model(**settings: Any) -> Qwen3ForCausalLM:
    """The same weights each time."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 320, "initializer_range": 0.05}
    ends = {"eos_token_id": 256, "pad_token_id": 257, "max_position_embeddings": 256}
    return Qwen3ForCausalLM(Qwen3Config(**(sizes | heads | ends | settings)))
