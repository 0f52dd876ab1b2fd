import re

import pytest

from gar.data.prompts import (
    anchor_lengths,
    drop_long_prompts,
    format_instruction,
    prompt_lengths,
    render_problems,
    render_prompt,
)
from gar.errors import DataError, ModelError
from gar.types import Anchor, Problem, Tags


def problem(prompt, **fields) -> Problem:
    return Problem(id="n-7", prompt=prompt, answer="7", anchors=(Anchor(text="<think> 3 + 4 </think>"),), **fields)


def test_render_prompt_plain_changes_nothing():
    messages = [{"role": "user", "content": "3+4="}]
    assert render_prompt("3+4=\n", "plain", chat=True) == "3+4=\n"
    assert render_prompt(messages, "plain", chat=False) == messages


@pytest.mark.parametrize("prompt", ["3+4=", " 3+4=\n"])
def test_render_prompt_asks_for_the_format_after_the_text(prompt):
    text = render_prompt(prompt, "boxed", chat=False)
    assert text == "3+4=\n\nShow your working, then give the final answer inside \\boxed{}.\n\n"


def test_render_prompt_makes_text_a_user_message_where_the_tokenizer_chats():
    rendered = render_prompt("3+4=", "think-answer", chat=True)
    assert rendered == [{"role": "user", "content": f"3+4=\n\n{format_instruction('think-answer')}"}]


def test_render_prompt_puts_the_instruction_into_the_last_user_message_and_leaves_its_input():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1="},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3+4="},
    ]
    rendered = render_prompt(messages, "boxed", chat=True)
    assert [message["role"] for message in rendered] == ["system", "user", "assistant", "user"]
    assert rendered[:3] == messages[:3]
    assert rendered[3]["content"].startswith("3+4=\n\nShow your working")
    assert messages[3]["content"] == "3+4="


def test_format_instruction_shows_one_well_formed_example_with_the_tags_of_the_run():
    tags = Tags(think_open="<|think|>", think_close="<|/think|>")
    instruction = format_instruction("think-answer", tags)
    example = instruction.splitlines()[-1]
    pattern = r"<\|think\|>[^<]+<\|/think\|> <answer>[^<]+</answer>"
    assert re.fullmatch(pattern, example)
    assert "<think>" not in instruction


def test_render_problems_never_touches_an_expert_solution(chat_tokenizer):
    given = problem("3+4=", source="s")
    (rendered,) = render_problems([given], "think-answer", chat_tokenizer)
    assert rendered.anchors == given.anchors
    assert (rendered.id, rendered.answer, rendered.source) == ("n-7", "7", "s")
    assert rendered.prompt[0]["content"].startswith("3+4=")


def test_render_problems_makes_all_prompts_messages_where_some_are(chat_tokenizer):
    messages = [{"role": "user", "content": "1+1="}]
    rendered = render_problems([problem("3+4="), problem(messages)], "plain", chat_tokenizer)
    assert [each.prompt for each in rendered] == [[{"role": "user", "content": "3+4="}], messages]


def test_render_problems_refuses_messages_without_a_chat_template(tokenizer):
    with pytest.raises(
        ModelError, match=r"the prompt of problem 'n-7' is given as chat messages, and the tokenizer has"
    ):
        render_problems([problem([{"role": "user", "content": "3+4="}])], "plain", tokenizer)


def test_render_problems_names_the_problem_without_a_user_message(chat_tokenizer):
    with pytest.raises(DataError, match=r"problem 'n-7': chat messages without a user message: roles \['system'\]"):
        render_problems([problem([{"role": "system", "content": "3+4="}])], "boxed", chat_tokenizer)


def test_prompt_lengths_count_special_tokens_and_the_chat_template(chat_tokenizer):
    prompts = ["a b c", [{"role": "user", "content": "a b c"}], "a"]
    assert prompt_lengths(prompts, chat_tokenizer) == [
        4,
        7,
        2,
    ]  # <eos> after text; "role user" before, "role assistant" after


def test_prompt_lengths_keep_their_order_across_batches(tokenizer):
    prompts = ["w " * (index % 37 + 1) for index in range(1200)]
    assert prompt_lengths(prompts, tokenizer) == [index % 37 + 1 for index in range(1200)]
    assert prompt_lengths([], tokenizer) == []


def test_anchor_lengths_count_the_text_alone(chat_tokenizer):
    assert anchor_lengths([Anchor(text="a b c"), Anchor(text="a")], chat_tokenizer) == [3, 1]
    assert anchor_lengths([], chat_tokenizer) == []


def test_drop_long_prompts_keeps_those_that_just_fit(tokenizer):
    problems = [problem("w " * length) for length in (3, 5, 4, 9)]
    kept, num_dropped = drop_long_prompts(problems, tokenizer, 4)
    assert kept == [problems[0], problems[2]]
    assert num_dropped == 2


def test_drop_long_prompts_refuses_to_drop_all(tokenizer):
    problems = [problem("w " * length) for length in (30, 50, 70)]
    message = r"no prompt fits into max_prompt_tokens = 8: the shortest of 3 has 30, the median 50, the instruction"
    with pytest.raises(DataError, match=message):
        drop_long_prompts(problems, tokenizer, 8)
