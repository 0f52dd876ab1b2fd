"""What the model is asked, word for word."""

import pytest

from gar.errors import ConfigError
from gar.evaluation.benchmarks import (
    BENCHMARKS,
    benchmark_prompt,
    default_form,
    load_benchmark,
)
from gar.evaluation.benchmarks.prompts import policy_prompt
from gar.settings import EMBEDDED_TASKS
from gar.types import Problem
from tests.support.errors import raises
from tests.support.files import write_jsonl

OPEN = Problem(id="1", prompt="What is 1+1?", answer="2")
CHOICE = Problem(id="2", prompt="Which?", answer="B", choices=("one", "two"), source="law")
STRICT = (
    "First work the problem out between <think> and </think>. Then give the final answer alone between <answer> and "
    "</answer>. Write nothing else:\n<think> your working </think> <answer> final answer </answer>"
)


@pytest.mark.parametrize(
    ("problem", "form", "benchmark", "expected"),
    [
        (OPEN, "think-answer", "hmmt-feb-2025", f"What is 1+1?\n\n{STRICT}"),
        (OPEN, "boxed", "hmmt-feb-2025", "Put your final answer within \\boxed{}.\n\nWhat is 1+1?"),
        (
            OPEN,
            "boxed",
            "aime-2026",
            "Put your final answer within \\boxed{}.\nThe answer is an integer between 0 and 999 inclusive.\n\n"
            "What is 1+1?",
        ),
        (OPEN, "as-is", "gsm8k", "What is 1+1?"),
        (
            CHOICE,
            "think-answer",
            "gpqa-diamond",
            f"Which?\n\nA. one\nB. two\n\nThe final answer is the letter of the right choice alone.\n{STRICT}",
        ),
        (
            CHOICE,
            "boxed",
            "gpqa-diamond",
            "Put your final answer within \\boxed{}.\nThe final answer is the letter of the right choice alone.\n\n"
            "Which?\n\nA. one\nB. two",
        ),
    ],
)
def test_benchmark_prompt_word_for_word(problem, form, benchmark, expected):
    assert benchmark_prompt(problem, form, BENCHMARKS[benchmark]) == expected


def test_benchmark_prompt_of_a_file_asks_as_training_does(tmp_path):
    """Prompts of files keep white space at their ends, and an instruction replaces it, as in `data.template`."""
    read = load_benchmark(write_jsonl(tmp_path / "mine.jsonl", [{"prompt": " 1+1?\n", "answer": 2}]))
    plain = Problem(id="1", prompt="1+1?", answer="2")
    for form in ("think-answer", "boxed"):
        assert benchmark_prompt(read.problems[0], form, read.benchmark) == benchmark_prompt(plain, form, read.benchmark)
    assert benchmark_prompt(read.problems[0], "as-is", read.benchmark) == " 1+1?\n"


def test_benchmark_prompt_puts_the_instruction_into_the_last_message():
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "1+1?"}]
    problem = Problem(id="1", prompt=chat, answer="2")
    assert benchmark_prompt(problem, "boxed", BENCHMARKS["gsm8k"]) == [
        chat[0], {"role": "user", "content": "Put your final answer within \\boxed{}.\n\n1+1?"},
    ]  # fmt: skip
    assert benchmark_prompt(problem, "as-is", BENCHMARKS["gsm8k"]) == chat
    answered = Problem(id="1", prompt=[*chat, {"role": "assistant", "content": "2"}], answer="2")
    with raises(ConfigError):  # no place for an instruction
        benchmark_prompt(answered, "boxed", BENCHMARKS["gsm8k"])


def test_policy_prompt_is_a_message_where_there_is_a_chat_template():
    assert policy_prompt("text", "boxed", chat=True) == [{"role": "user", "content": "text"}]
    assert policy_prompt("text", "boxed", chat=False) == "text\n\n"
    assert policy_prompt("text", "as-is", chat=True) == policy_prompt("text", "as-is", chat=False) == "text"


def test_default_form_is_the_papers_but_for_the_embedded_task(tmp_path):
    assert {name: default_form(benchmark) for name, benchmark in BENCHMARKS.items()} == {
        name: "as-is" if name.removesuffix("-harder") in EMBEDDED_TASKS else "think-answer" for name in BENCHMARKS
    }
    file = write_jsonl(tmp_path / "arithmetic.jsonl", [{"prompt": "1+1=", "answer": 2}])
    assert default_form(load_benchmark(file).benchmark) == "think-answer"
