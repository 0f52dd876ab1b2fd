"""A Qwen3 of a few hundred weights and a tokenizer of a few words: the real classes, in milliseconds."""

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def word_tokenizer(words: Sequence[str] = ("<unk>", "<eos>"), *, signs: bool = False, **settings: Any) -> Any:
    """One token per word between spaces, or per word and sign; other words are `<unk>`."""
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace() if signs else pre_tokenizers.WhitespaceSplit()
    special = {name: word for name, word in (("pad_token", "<pad>"), ("eos_token", "<eos>")) if word in words}
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", **special | settings)


def tiny_qwen3(words: Sequence[str], **settings: Any) -> Qwen3ForCausalLM:
    """Random weights, the same every time; `settings` are fields of `Qwen3Config`."""
    sizes = {"max_position_embeddings": 64, "tie_word_embeddings": False, "eos_token_id": words.index("<eos>")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen3ForCausalLM(Qwen3Config(vocab_size=len(words), head_dim=8, **sizes | settings)).eval()
