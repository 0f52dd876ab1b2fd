"""Small files of our own in the published column schemas, and a tokenizer that needs no download."""

import pytest
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from tests.support.tiny import word_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token per word or sign; everything but the special tokens is unknown, which does not change lengths."""
    return word_tokenizer(signs=True)


@pytest.fixture(scope="session")
def chat_tokenizer() -> PreTrainedTokenizerFast:
    """The same, ending a text in <eos>, with a chat template that adds two tokens to each message and two after all."""
    made = word_tokenizer(signs=True)
    ending = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    made.backend_tokenizer.post_processor = ending
    made.chat_template = (
        "{% for message in messages %}role {{ message['role'] }} {{ message['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}role assistant{% endif %}"
    )
    return made
