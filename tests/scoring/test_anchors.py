"""Anchors: which can be scored, and the prompt before an anchor of a different problem."""

import pytest

from gar.models.embedded import load_embedded
from gar.scoring.anchors import AnchorReader, usable_anchors
from gar.sequences import SequenceReader, SpanRule
from gar.settings import SignalSettings
from gar.types import Anchor, Problem, Tags

TEMPLATE = "{% if shout %}99{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture
def tokenizer():
    _, tokenizer = load_embedded()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def reader_of(tokenizer, span="response", context=None) -> SequenceReader:
    rule = SpanRule.from_settings(SignalSettings(span=span), format="none", tags=Tags(), tokenizer=tokenizer)
    return SequenceReader(tokenizer, rule, context=context)


def problem(name: str, *anchors: str, prompt: str = "3+4=") -> Problem:
    return Problem(id=name, prompt=prompt, answer="7", anchors=tuple(Anchor(text=text) for text in anchors))


def test_anchors_that_cannot_be_scored_are_left_out_and_counted(tokenizer):
    given = [problem("good", "7"), problem("ends", tokenizer.eos_token), problem("both", "7", tokenizer.eos_token * 2)]
    kept, left_out = usable_anchors(given, tokenizer, reader_of(tokenizer))
    assert [len(problem.anchors) for problem in kept] == [1, 0, 1]
    assert kept[0] is given[0]
    assert left_out == "Left out: 2 expert solutions without a token to score, of ends, both."
    given = [problem("empty", "<think></think>7"), problem("full", "<think>7</think>7"), problem("none")]
    kept, left_out = usable_anchors(given, tokenizer, reader_of(tokenizer, span="think"))
    assert [len(problem.anchors) for problem in kept] == [0, 1, 0]
    assert usable_anchors(given[1:], tokenizer, reader_of(tokenizer, context=64)) == (given[1:], "")
    context = len(tokenizer("3+4=")["input_ids"]) + 4
    given = [problem("fits", "7777"), problem("long", "77777")]
    kept, left_out = usable_anchors(given, tokenizer, reader_of(tokenizer, context=context))
    assert [len(problem.anchors) for problem in kept] == [1, 0]
    assert "context, of long." in left_out


def test_another_problems_anchor_stands_after_its_prompt_as_the_run_renders_it(tokenizer):
    messages = ([{"role": "user", "content": "3+4="}], [{"role": "user", "content": "5+6="}])
    problems = [problem("a", "7", prompt=messages[0]), problem("b", "1", prompt=messages[1])]
    reader = AnchorReader(
        problems, tokenizer, reader_of(tokenizer), source="shuffled-anchor", seed=0,
        chat_template_kwargs={"shout": True},
    )  # fmt: skip
    (sequence,) = reader.sequences(0, prompt_ids=[1])
    expected = tokenizer.apply_chat_template(messages[1], tokenize=False, shout=True)
    assert expected == "995+6="
    assert sequence.context_ids == tokenizer(expected, add_special_tokens=False)["input_ids"]
    short = reader_of(tokenizer, context=len(sequence.context_ids))  # without the 99 the anchors would fit
    kept, _ = usable_anchors(problems, tokenizer, short, chat_template_kwargs={"shout": True})
    assert not any(problem.anchors for problem in kept)
