"""Lists of reward functions as public training scripts have them, each through a step of `GARTrainer`.

The shapes are those of the scripts, the code is new. Every script writes its responses in its own tags: right and
formatted, right alone, formatted alone, neither. Only the first two may earn a bonus.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer
from trl.rewards import accuracy_reward

from gar import ConfigError, Verifier
from gar.integrations.trl.deciding import find_decider
from tests.integrations.test_trl_dropin import ROWS, planned_trainer, reward_model, save_policy
from tests.support.errors import raises

TAGS = ("think", "answer")
WORDS = (
    "<unk>", "<eos>", "<pad>", "3+4=", "2+5=", "add", "count", "on", "so", "\n", "\\boxed{7}", "\\boxed{8}", "7", "8",
    *(f"<{tag}>" for tag in TAGS), *(f"</{tag}>" for tag in TAGS),
)  # fmt: skip


def texts(completions: list) -> list[str]:
    return [completion[0]["content"] for completion in completions]


def correctness_reward(prompts: list, completions: list, answer: list, **_: Any) -> list[float]:
    return [
        2.0 if re.findall(r"\d", t)[-1] == gold else 0.0 for t, gold in zip(texts(completions), answer, strict=True)
    ]


def scaled_accuracy(completions: list, scale: float, **columns: Any) -> list[float]:
    return [scale * value for value in accuracy_reward(completions, **columns)]


def format_reward(completions: list, **_: Any) -> list[float]:
    return [float("</think>" in text and "<answer>" in text) for text in texts(completions)]


def tag_count_reward(completions: list, **_: Any) -> list[float]:
    marks = ("<think>", "</think>", "<answer>", "</answer>")
    return [sum(0.25 for mark in marks if text.count(mark) == 1) for text in texts(completions)]


class LengthReward:
    """A callable object, named by its class."""

    def __call__(self, completion_ids: list, **_: Any) -> list[float]:
        return [-len(ids) / 100 for ids in completion_ids]


async def judge(completions: list, answer: list, **_: Any) -> list[float]:
    return [10.0 if gold in text else 1.0 for text, gold in zip(texts(completions), answer, strict=True)]


def math_reward(completions: list, task: list, answer: list, **_: Any) -> list[float | None]:
    values = zip(texts(completions), task, answer, strict=True)
    return [float(gold in text) if kind == "math" else None for text, kind, gold in values]


def code_reward(completions: list, task: list, answer: list, **_: Any) -> list[float | None]:
    values = zip(texts(completions), task, answer, strict=True)
    return [float(gold in text) if kind == "code" else None for text, kind, gold in values]


def solved_its_task(values: dict[str, float | None]) -> bool:
    math, code = values["math_reward"], values["code_reward"]
    assert (math is None) != (code is None)
    return max(math or 0.0, code or 0.0) == 1


FREE = ("add so \\boxed{7}", "count so so \\boxed{7}", "add so \\boxed{8}", "on \\boxed{8}")
ANSWER = ("<think> add </think> <answer> 7 </answer>", "count so 7", "<think> on </think> <answer> 8 </answer>", "8")
BOXED = ("<think> add </think> \\boxed{7}", "count so \\boxed{7}", "<think> on </think> \\boxed{8}", "\\boxed{8}")


@dataclass(frozen=True, kw_only=True)
class Script:
    """`functions`, of the policy. `correct` is what the author would add, `shown` what the error proposes."""

    functions: Callable[[Path], list[Any]]
    responses: tuple[str, ...]
    shown: str
    correct: Any = None
    names: str = ""
    grades: bool = False


SCRIPTS = {
    "toolkit": Script(
        functions=lambda _: [
            update_wrapper(partial(scaled_accuracy, scale=2.0), accuracy_reward), format_reward, tag_count_reward
        ],
        responses=BOXED, shown="scaled_accuracy", correct="scaled_accuracy",
        names="scaled_accuracy format_reward tag_count_reward",
    ),
    "LoRA with a callable object": Script(
        functions=lambda _: [LengthReward(), correctness_reward], responses=FREE, shown="correctness_reward",
        correct="correctness_reward", names="LengthReward correctness_reward",
    ),
    "async judge": Script(
        functions=lambda _: [judge, format_reward], responses=ANSWER, shown="format_reward",
        correct=lambda values: values["judge"] >= 10,
    ),
    "two tasks": Script(
        functions=lambda _: [math_reward, code_reward], responses=FREE, shown="code_reward", correct=solved_its_task,
    ),
    "reward model and format": Script(
        functions=lambda policy: [format_reward, reward_model(policy, len(WORDS))], responses=FREE, shown="policy",
        correct="policy", names="format_reward policy", grades=True,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("models") / "policy", WORDS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_scripts_list_pays_right_responses_alone_or_is_an_error(policy: Path, tmp_path: Path, name: str):
    script = SCRIPTS[name]
    functions = script.functions(policy)
    names = script.names.split() or [function.__name__ for function in functions]
    options = {
        "responses": script.responses,
        "reward_funcs": functions,
        "train_dataset": [row | {"task": task} for row, task in zip(ROWS, ("math", "code") * 2, strict=True)],
        "args": {"max_completion_length": 20},
    }
    with raises(ConfigError, "correct", ", ".join(names), f'correct="{script.shown}",'):
        find_decider(functions, None)
    trainer, records = planned_trainer(policy, tmp_path, correct=script.correct, **options)
    if script.grades:
        with pytest.warns(UserWarning, match=r"policy decides .* highest value so far is 0.5"):
            trainer.train()
    else:
        trainer.train()
    assert [*trainer._logs["rewards"]] == [*names, "gar"]
    assert [row.verified for row in records] == [True, True, False, False] * 2
    assert sum(row.bonus > 0 for row in records) == 2
    assert not any(row.bonus for row in records if not row.verified)
    assert trainer.reward_weights.tolist() == [1.0] * (len(names) + 1)


def seven(completions: list, **_: Any) -> list[float]:
    return [float("7" in text) for text in texts(completions)]


def long(completions: list, **_: Any) -> list[float]:
    return [float(len(text) > 18) for text in texts(completions)]


def graded(completions: list, **_: Any) -> list[float | None]:
    return [None if "count" in text else 0.7 if "7" in text else -1.0 for text in texts(completions)]


def test_the_bonus_has_the_weight_and_the_none_of_the_function_that_decides(policy: Path, tmp_path: Path):
    args = {"reward_weights": [0.5, 3.0]}
    both = {"responses": FREE, "reward_funcs": [long, graded]}
    for correct, weight in (("graded", 3.0), ("long", 0.5), (lambda v: v["long"] > 0 or None, 1.0)):
        trainer, records = planned_trainer(policy, tmp_path, args=args, correct=correct, **both)
        trainer._decider._highest = 1.0  # so that the grade 0.7 is not told
        trainer.train()
        assert trainer.reward_weights.tolist() == [0.5, 3.0, weight]
        decided = {"graded": [True, None, False, False], "long": [False, True, False, False]}
        expected = decided["graded"] if weight == 3 else [v or (None if weight == 1 else v) for v in decided["long"]]
        assert [row.verified for row in records] == [value is True for value in expected] * 2
        bonuses = [*trainer._logs["rewards"]["gar"]]
        assert [value is None or value != value for value in bonuses] == [value is None for value in expected] * 2
        assert [row.status for row in records[:4]] == [
            "unparsed" if value is None else "ok" if value else "wrong" for value in expected
        ]


def test_a_function_of_all_values_gets_them_as_the_functions_returned_them(policy: Path, tmp_path: Path):
    seen: list[dict[str, float | None]] = []
    trainer, _ = planned_trainer(
        policy, tmp_path, responses=FREE, reward_funcs=[graded], correct=lambda values: bool(seen.append(values))
    )
    trainer.train()
    assert seen == [{"graded": value} for value in (0.7, None, -1.0, -1.0)] * 2  # float32 has no 0.7


def test_a_function_that_decides_and_is_only_measured_gives_the_bonus_the_weight_1(policy: Path, tmp_path: Path):
    both = {"reward_funcs": [long, seven], "correct": "seven", "responses": FREE}
    with pytest.warns(UserWarning, match="seven decides what is right and has the weight 0"):
        trainer, records = planned_trainer(policy, tmp_path, args={"reward_weights": [1.0, 0.0]}, **both)
    assert trainer.reward_weights.tolist() == [1.0, 0.0, 1.0]
    trainer.train()
    own = [value for value in trainer._logs["rewards"]["gar"] if value]
    assert own
    assert sorted(own) == pytest.approx(sorted(row.bonus for row in records if row.bonus))


def gar(completions: list, **_: Any) -> list[float]:
    return [0.0] * len(completions)


def test_a_function_may_not_have_the_name_of_our_column(policy: Path, tmp_path: Path):
    for decides in ({"verifier": Verifier(format="none")}, {"correct": "seven"}):
        with raises(ConfigError, "reward-names"):
            planned_trainer(policy, tmp_path, reward_funcs=[seven, gar], **decides)


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        ([[1.0, 0.0], [1.0, 1.0]], []),
        ([[0.1, 0.0], [0.1, 0.0], [1.1, 0.1]], ["0.1", "1.1"]),  # first credit for a format only
        ([[1.5, 0.0], [3.0, 1.5], [3.0, 0.0]], ["3.0"]),
        ([[2 / 3, 5 / 3]], ["1.6666666"]),
        ([[0.1 * i, 0.05] for i in range(1, 9)], ["0.1", "0.2", "0.3"]),  # no end of it otherwise
    ],
)
def test_advice_on_a_graded_function_names_a_value_that_was_reached(batches, told):
    decider = find_decider([seven], None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches:
            decider.decide(torch.tensor(batch)[:, None], slice(None))
    advice = [str(each.message).rpartition("set correct=")[2].rstrip(".") for each in caught]
    assert [each.rpartition(" ")[2] for each in advice] == told
    for line, value in zip(advice, told, strict=True):
        rule = find_decider([seven], eval(line))
        assert rule.decide(torch.tensor([float(value), float(value) / 2])[:, None], slice(None)) == [True, False]


def test_a_single_function_that_grades_is_said_once(policy: Path, tmp_path: Path):
    trainer, records = planned_trainer(
        policy, tmp_path, responses=FREE, reward_funcs=graded, args={"max_steps": 2}
    )  # fmt: skip
    with pytest.warns(UserWarning, match=r"graded decides what is right. Its highest value so far is 0.7\.") as caught:
        trainer.train()
    assert len([each for each in caught if "graded" in str(each.message)]) == 1
    assert [row.verified for row in records[:4]] == [True, False, False, False]


class Environment:
    """Rewards what it has seen: nothing, so all responses equally."""

    def reset(self, **_: Any) -> None: ...

    def get_reward(self) -> float:
        return 1.0


def test_an_environment_that_rewards_is_one_of_the_functions(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    tokenizer = AutoTokenizer.from_pretrained(policy)
    calls = "{% for call in m['tool_calls'] or [] %}{{ call }}{% endfor %}"
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} " + calls + "{% endfor %}"
    given = {"responses": FREE, "environment_factory": Environment, "processing_class": tokenizer}
    with raises(ConfigError, "correct", "2 functions: seven, Environment."):
        planned_trainer(policy, tmp_path, reward_funcs=seven, **given)
    for functions, correct, right in (
        (seven, "Environment", [True] * 4),
        (seven, "seven", [True, True, False, False]),
        (None, lambda values: values["Environment"] > 1, [False] * 4),
    ):
        trainer, records = planned_trainer(policy, tmp_path, reward_funcs=functions, correct=correct, **given)
        trainer.train()
        assert [row.verified for row in records[:4]] == right


def test_the_error_without_correct_proposes_a_name_that_speaks_of_right_answers():
    for names, proposed in ((["check_answer", "check_numbers"], "check_answer"), (["format", "judge"], "judge")):
        with raises(ConfigError, "correct", f'correct="{proposed}",'):
            find_decider([seven, long], None, names)


def test_what_does_not_name_a_decider_is_an_error(policy: Path, tmp_path: Path):
    def gar(**_: Any) -> list[float]:
        return []

    for functions, correct, words in (
        (
            [seven, long],
            "sevens",
            "correct=sevens names no function of reward_funcs (seven, long). Did you mean 'seven'?",
        ),
        ([seven, long], long, 'correct= is the function long itself. Give its name: correct="long".'),
        ([seven, long], 0, "correct=0 names no function"),
        ([seven, seven], "seven", "have the name 'seven'"),
        (
            [partial(scaled_accuracy, scale=1.0), partial(scaled_accuracy, scale=2.0)],
            None,
            "have the name 'scaled_accuracy'",
        ),
        ([gar, seven], "seven", "have the name 'gar'"),
        ([], "seven", "none given"),
        (None, lambda values: True, "none are given"),
    ):
        with raises(ConfigError, None, words):
            planned_trainer(policy, tmp_path, reward_funcs=functions, correct=correct)
    with raises(ConfigError, "correct", "The verifier decides"):
        planned_trainer(policy, tmp_path, reward_funcs=[seven], correct="seven", verifier=Verifier())
    trainer, _ = planned_trainer(
        policy, tmp_path, responses=FREE, reward_funcs=[graded], correct=lambda values: values["graded"] > 0
    )
    with raises(ConfigError, "correct", "failed on {'graded': None}: '>' not supported"):
        trainer.train()
    for returned in (1.0, "yes"):
        trainer, _ = planned_trainer(
            policy, tmp_path, responses=FREE, reward_funcs=[seven], correct=lambda v, returned=returned: returned
        )
        with raises(ConfigError, "correct", f"returned {returned!r} for {{'seven': 1.0}}", 'values["seven"] > 0'):
            trainer.train()
