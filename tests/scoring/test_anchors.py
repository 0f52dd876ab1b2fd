"""Anchors: which can be scored."""

from typing import Any

import pytest

from gar.errors import DataError
from gar.models.embedded import load_embedded
from gar.reader import Reader, SpanRule
from gar.scoring.anchors import check_anchors
from gar.settings import SignalSettings
from gar.types import Anchor, Problem
from tests.support.errors import raises

TEMPLATE = "{% if shout %}99{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture
def tokenizer():
    _, tokenizer = load_embedded()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def reader_of(tokenizer, span="response", context=None, **template) -> Reader:
    rule = SpanRule.from_settings(SignalSettings(span=span), None, tokenizer)
    return Reader(tokenizer, rule, context=context, chat_template_kwargs=template)


def problem(name: str, *anchors: str, prompt: Any = "3+4=") -> Problem:
    return Problem(id=name, prompt=prompt, answer="7", anchors=tuple(Anchor(text=text) for text in anchors))


def test_anchors_that_cannot_be_scored_are_counted_and_an_error_if_no_other_is_left(tokenizer):
    given = [problem("good", "7"), problem("ends", tokenizer.eos_token), problem("both", "7", tokenizer.eos_token * 2)]
    note = "Of 4 expert solutions read, 2 have no token to score, the first of problem 'ends'. They give no bonus."
    assert check_anchors(given, reader_of(tokenizer)) == note
    given = [problem("empty", "<think></think>7"), problem("full", "<think>7</think>7"), problem("none")]
    assert "'empty'" in check_anchors(given, reader_of(tokenizer, span="think"))
    assert check_anchors(given[1:], reader_of(tokenizer, context=64)) == ""
    context = len(tokenizer("3+4=")["input_ids"]) + 4
    given = [problem("fits", "7777"), problem("long", "77777")]
    reader = reader_of(tokenizer, context=context)
    assert "1 exceed the model's context with their prompt, the first of problem 'long'" in check_anchors(given, reader)
    with raises(DataError, "no-anchors"):
        check_anchors([given[1], problem("none")], reader)
    shouting = reader_of(tokenizer, context=context, shout=True)  # without the 99 of the template it would fit
    with raises(DataError, "no-anchors"):
        check_anchors([problem("chat", "7777", prompt=[{"role": "user", "content": "3+4="}])], shouting)
    many = [problem(f"{i}", "77777") for i in range(100)]
    assert check_anchors([*many, problem("fits", "7777")], reader).startswith("Of 51 expert solutions read, 50 exceed")
    assert check_anchors(many, reader).startswith("Of 50 expert solutions read, 50 exceed")  # others may be shorter
    with raises(DataError, "no-anchors"):
        check_anchors([problem(f"{i}", *["77777"][: i == 500]) for i in range(1000)], reader)


def test_a_text_that_an_engine_carries_is_one_expert_solution(tokenizer):
    """Rows of the user's own: the characters of a text are no solutions."""
    reader, prompt_ids = reader_of(tokenizer), tokenizer("3+4=")["input_ids"]
    listed = reader.carried_anchors(prompt_ids, {"anchors": ["3 + 4 = 7"]})
    assert len(listed.usable) == 1
    assert reader.carried_anchors(prompt_ids, {"anchors": "3 + 4 = 7"}) == listed
    assert reader.carried_anchors(prompt_ids, {"anchors": ""}).usable == ()
