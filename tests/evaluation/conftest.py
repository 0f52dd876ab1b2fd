"""A real Qwen3 that is a Markov chain: what follows a token, and how often, is written down, so results are known."""

from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from gar.types import Anchor, Problem
from gar.verify import Verifier
from tests.support.tiny import tiny_qwen3, word_tokenizer

WORDS = ["<pad>", "<eos>", "<unk>", "<think>", "</think>", "<answer>", "</answer>", *"0123456789", "=", "+", "work"]
Chain = Mapping[str, Mapping[str, float]]

GOOD_FORMAT: Chain = {
    "=": {"<think>": 1},
    "<think>": {"work": 1},
    "work": {"</think>": 1},
    "</think>": {"<answer>": 1},
    "7": {"</answer>": 1},
    "3": {"</answer>": 1},
    "</answer>": {"<eos>": 1},
}


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer(WORDS, padding_side="left")


@pytest.fixture
def make_policy() -> Callable[[Chain], Qwen3ForCausalLM]:
    """A policy that keeps the format, with changes: `make_policy({"<answer>": {"7": 0.25, "3": 0.75}})`."""
    return lambda changes: markov_policy({**GOOD_FORMAT, **changes})


def markov_policy(chain: Chain) -> Qwen3ForCausalLM:
    """Each token's hidden state is its own axis, so that the head's column holds the logits of what follows it."""
    size = len(WORDS)
    policy = tiny_qwen3(
        WORDS, hidden_size=size, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1
    )
    with torch.no_grad():
        policy.model.embed_tokens.weight.copy_(torch.eye(size))
        policy.model.layers[0].self_attn.o_proj.weight.zero_()
        policy.model.layers[0].mlp.down_proj.weight.zero_()
        logits = torch.full((size, size), -100.0)  # [what follows, token]
        logits[WORDS.index("<eos>")] = -50.0  # a token that the chain does not name ends the response
        for token, following in chain.items():
            for word, probability in following.items():
                logits[WORDS.index(word), WORDS.index(token)] = torch.tensor(probability).log()
        policy.lm_head.weight.copy_(logits / size**0.5)  # the norm scales the axis to sqrt(size)
    return policy


@pytest.fixture
def problems() -> list[Problem]:
    return [
        Problem(id=f"p{i}", prompt="3 + " * (i % 3) + "4 =", answer="7", anchors=(Anchor(text="work"),))
        for i in range(40)
    ]


@pytest.fixture(scope="session")
def verifier() -> Iterator[Verifier]:
    with Verifier() as verifier:
        yield verifier
