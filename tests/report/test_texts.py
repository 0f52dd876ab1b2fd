"""Texts of models as the page shows them."""

import pytest

from gar.report.texts import readable_prompt, recorded_prompt, shown_text


def test_shown_text_says_how_much_it_cut():
    text = shown_text("abcdef", max_characters=4)
    assert (text.text, text.num_cut) == ("abcd", 2)


def test_recorded_prompt_gives_chat_messages_back():
    messages = [{"role": "user", "content": "3+4=\n'"}]
    assert recorded_prompt(str(messages)) == messages
    assert readable_prompt(str(messages)) == "user:\n3+4=\n'"


@pytest.mark.parametrize("prompt", ["3+4=", "[{'role': 'user'", "[{'x': 1}]", "[{'role': open('x')}]"])
def test_recorded_prompt_leaves_other_texts_as_they_are(prompt):
    assert recorded_prompt(prompt) == prompt
    assert readable_prompt(prompt) == prompt
