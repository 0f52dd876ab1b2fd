"""Prompts as the policy sees them."""

import re

import pytest
from tokenizers import processors

from gar.data.prompts import render_problems, render_prompt
from gar.errors import DataError, ModelError
from gar.types import Anchor, Problem, Tags
from gar.verify.formats import FORMATS
from tests.support.errors import raises
from tests.support.tiny import word_tokenizer

TALK = [{"role": "user", "content": "3+4="}]


@pytest.fixture(scope="module")
def tokenizer():
    """One token per word or sign. All but the special tokens are unknown, which does not change lengths."""
    return word_tokenizer(signs=True)


@pytest.fixture(scope="module")
def chat_tokenizer():
    """The same, ending a text in <eos>, with a chat template that adds two tokens to each message and two after all."""
    made = word_tokenizer(signs=True)
    ending = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    made.backend_tokenizer.post_processor = ending
    made.chat_template = (
        "{% for message in messages %}role {{ message['role'] }} {{ message['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}role assistant{% endif %}"
    )
    return made


def problem(prompt, **fields) -> Problem:
    return Problem(id="n-7", prompt=prompt, answer="7", anchors=(Anchor(text="3 + 4"), Anchor(text=" ")), **fields)


def test_render_prompt_adds_the_instruction_to_text_or_to_the_last_user_message():
    assert render_prompt("3+4=\n", "plain", chat=True) == "3+4=\n"
    assert render_prompt(TALK, "plain", chat=False) == render_prompt(TALK, "chat", chat=True) == TALK
    assert render_prompt("3+4=", "chat", chat=True) == TALK
    for prompt in ("3+4=", " 3+4=\n"):
        text = render_prompt(prompt, "boxed", chat=False)
        assert text == "3+4=\n\nShow your working, then give the final answer inside \\boxed{}.\n\n"
    rendered = render_prompt("3+4=", "think-answer", chat=True)
    assert rendered == [{"role": "user", "content": f"3+4=\n\n{FORMATS['think-answer'].instruction(Tags())}"}]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1="},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3+4="},
    ]
    rendered = render_prompt(messages, "boxed", chat=True)
    assert rendered[:3] == messages[:3]
    assert rendered[3]["content"].startswith("3+4=\n\nShow your working")
    assert messages[3]["content"] == "3+4="  # the input is left


def test_instruction_shows_one_well_formed_example_with_the_tags_of_the_run():
    instruction = FORMATS["think-answer"].instruction(Tags(think_open="<|think|>", think_close="<|/think|>"))
    pattern = r"<\|think\|>[^<]+<\|/think\|> <answer>[^<]+</answer>"
    assert re.fullmatch(pattern, instruction.splitlines()[-1])
    assert "<think>" not in instruction


def test_render_problems_changes_prompts_alone_and_makes_all_messages_where_some_are(tokenizer, chat_tokenizer):
    given = problem("3+4=", source="s")
    (rendered,) = render_problems([given], "think-answer", chat_tokenizer)
    assert (rendered.id, rendered.answer, rendered.source, rendered.anchors) == ("n-7", "7", "s", given.anchors)
    assert rendered.prompt[0]["content"].startswith("3+4=")
    both = render_problems([problem("3+4="), problem(TALK)], "plain", chat_tokenizer)
    assert [each.prompt for each in both] == [TALK, TALK]
    with raises(ModelError, None, "'n-7'"):
        render_problems([problem(TALK)], "plain", tokenizer)
    with raises(DataError, None, "'n-7'", "['system']"):
        render_problems([problem([{"role": "system", "content": "3+4="}])], "boxed", chat_tokenizer)


def test_the_template_chat_needs_one_of_the_tokenizer(tokenizer, chat_tokenizer):
    assert render_problems([problem("3+4=")], "chat", chat_tokenizer)[0].prompt == TALK
    with raises(ModelError, "no-chat-template"):
        render_problems([problem("3+4=")], "chat", tokenizer)
