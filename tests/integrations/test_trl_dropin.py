"""`GARTrainer` in place of `GRPOTrainer`: reward functions, columns and data sets of a TRL user."""

import contextlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl
from datasets import Dataset, DatasetDict
from transformers import AutoTokenizer, ProcessorMixin, Qwen3Config, Qwen3ForSequenceClassification
from trl import GRPOConfig
from trl.rewards import accuracy_reward

from gar import ConfigError, DataError, GARTrainer, ModelError, RewardSettings, Verifier, WatchdogSettings
from gar.errors import CollapseError
from gar.records import RolloutRecord
from gar.settings import AdvantageSettings
from tests.docs.pages import ROOT, python_blocks
from tests.integrations.conftest import SMALL
from tests.support.errors import raises
from tests.support.tiny import tiny_qwen3, word_tokenizer

WORDS = ("<unk>", "<eos>", "<pad>", "3+4=", "2+5=", "add", "count", "on", "so", "\\boxed{7}", "\\boxed{8}", "seven")
ROWS = [
    {
        "prompt": [{"role": "user", "content": sum_}],
        "solution": "\\boxed{7}",
        "answer": "7",
        "expert_solution": solution,
    }
    for sum_, solution in itertools.product(("3+4=", "2+5="), ("add on so \\boxed{7}", "count on so \\boxed{7}"))
]
RESPONSES = ("add on so \\boxed{7}", "count so so \\boxed{7}", "so \\boxed{8}", "on on on")
"""The responses of each group, in order: right, right, wrong, without an answer."""


def save_policy(folder: Path, words: Sequence[str] = WORDS, **settings: Any) -> Path:
    """Model and tokenizer, with a chat template of contents alone."""
    template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    word_tokenizer(words, chat_template=template).save_pretrained(folder)
    tiny_qwen3(words, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
               num_key_value_heads=1, **settings).save_pretrained(folder)  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"))


def planned_trainer(
    policy: Path, out: Path, *, responses: Sequence[str] = RESPONSES, args: dict[str, Any] | None = None, **options: Any
) -> tuple[GARTrainer, list[RolloutRecord]]:
    """A trainer on `ROWS` in groups of four with the given responses, and its records."""
    records: list[RolloutRecord] = []
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 12}
    trainer = GARTrainer(
        model=str(policy),
        args=GRPOConfig(str(out), **(SMALL | sizes | (args or {}))),
        on_rollouts=lambda step, rows: records.extend(rows),
        **{"train_dataset": Dataset.from_list(ROWS), **options},
    )
    tokenizer = trainer.processing_class
    words = [text.split(" ") for text in responses]  # a word may end in a line break
    ids = [[*tokenizer.convert_tokens_to_ids(each), tokenizer.eos_token_id] for each in words]
    trainer._generate_single_turn = lambda prompts, *_, **__: ([ids[i % len(ids)] for i in range(len(prompts))], None)
    return trainer, records


def is_right(completions: list, **_: Any) -> list[float]:
    return [float("7" in completion[0]["content"]) for completion in completions]


async def is_right_async(completions: list, **columns: Any) -> list[float]:
    return is_right(completions, **columns)


def is_right_or_none(completions: list, **_: Any) -> list[float | None]:
    texts = [completion[0]["content"] for completion in completions]
    return [None if "boxed" not in text else 1.0 if "7" in text else -1.0 for text in texts]


class RewardModel(Qwen3ForSequenceClassification):
    """Judges the same from the token ids of prompt and completion."""

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        right = (input_ids == self.right_id).any(1)
        return SimpleNamespace(logits=right.float()[:, None] - 0.5)


def reward_model(policy: Path, num_words: int = len(WORDS)) -> RewardModel:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_labels": 1, "head_dim": 8}
    model = RewardModel(Qwen3Config(vocab_size=num_words, **sizes))
    model.right_id = AutoTokenizer.from_pretrained(policy).convert_tokens_to_ids("\\boxed{7}")
    model.config._name_or_path = str(policy)
    return model


PAPER = AdvantageSettings(ddof=0, eps=1e-6)
DECIDERS = {
    "trl": (lambda _: accuracy_reward, [1, 1, 0, 0], None),
    "async": (lambda _: is_right_async, [1, 1, 0, 0], PAPER),
    "none, paper": (lambda _: is_right_or_none, [1, 1, -1, None], PAPER),
    "module": (reward_model, [0.5, 0.5, -0.5, -0.5], PAPER),
}


@pytest.mark.parametrize("name", DECIDERS)
def test_a_single_reward_function_decides_what_is_right(policy: Path, tmp_path: Path, name: str):
    make, values, advantage = DECIDERS[name]
    functions = make(policy)
    correct = policy.name if name == "module" else None
    trainer, records = planned_trainer(policy, tmp_path, reward_funcs=functions, correct=correct, advantage=advantage)
    with (
        pytest.warns(UserWarning, match="highest value so far is 0.5") if name == "module" else contextlib.nullcontext()
    ):
        trainer.train()
    for row, value in zip(records, values * 2, strict=True):
        assert (row.verified, row.well_formatted, row.penalty) == ((value or 0) > 0, True, 0.0)
        assert (row.alignment is None) == (not row.verified)
        if value is None:
            assert (row.status, row.num_scored_tokens, row.advantage) == ("unparsed", 0, 0.0)
    columns = torch.tensor([[torch.nan if v is None else v for v in values * 2]]).T
    added = torch.tensor([row.bonus for row in records])[:, None]
    added[columns.isnan()] = torch.nan
    assert added.nansum() > 0
    found = [list(column) for column in trainer._logs["rewards"].values()]
    torch.testing.assert_close(torch.tensor(found).T, torch.cat([columns, added], 1), equal_nan=True)
    for first in (0, 4):
        rewards = (columns + added)[first : first + 4, 0]
        rewards = rewards[rewards.isfinite()].double()
        expected = rewards - rewards.mean()
        expected /= rewards.std(correction=1) + 1e-4 if advantage is None else rewards.std(correction=0) + 1e-6
        advantages = [row.advantage for row in records[first : first + 4]][: len(rewards)]
        torch.testing.assert_close(torch.tensor(advantages).double(), expected, atol=1e-4, rtol=1e-4)


def test_settings_that_a_deciding_function_replaces_are_warned_of(policy: Path, tmp_path: Path):
    reward = RewardSettings(correct_reward=2.0, format_penalty=-1.0, bonus_weight=0.2)
    with pytest.warns(UserWarning, match=r"a reward function decides: reward.correct_reward, reward.format_penalty\."):
        planned_trainer(policy, tmp_path, reward_funcs=is_right, reward=reward)


def test_reward_functions_get_what_trl_passes_once_a_step(policy: Path, tmp_path: Path):
    calls: list[dict[str, Any]] = []

    def noting(completions: list, **given: Any) -> list[float]:
        calls.append(given)
        given["log_metric"]("seen", 3.0)
        given["log_extra"]("length", [len(ids) for ids in given["completion_ids"]])
        return is_right(completions)

    def shortness(completion_ids: list, **_: Any) -> list[float]:
        return [-len(ids) / 10 for ids in completion_ids]

    trainer, _ = planned_trainer(
        policy, tmp_path, reward_funcs=[noting, shortness], correct="noting",
        args={"max_steps": 2, "reward_weights": [1.0, 0.5]},
    )  # fmt: skip
    trainer.train()
    assert [call["trainer_state"].global_step for call in calls] == [2, 2]  # the same state, read at the end
    given = "prompts completion_ids solution answer expert_solution trainer_state log_metric log_extra"
    assert set(calls[0]) == set(given.split())
    row = trainer.state.log_history[0]
    assert (row["seen"], row["rewards/noting/mean"]) == (3.0, 0.5)
    assert trainer.reward_weights.tolist() == [1.0, 0.5, 1.0]
    expected = 0.5 - 0.25 * sum(len(text.split()) + 1 for text in RESPONSES) / 20 + row["rewards/gar/mean"]
    assert row["reward"] == pytest.approx(expected)


def test_without_verifier_and_functions_nothing_is_asked_of_the_format(policy: Path, tmp_path: Path):
    stream = Dataset.from_list(ROWS).to_iterable_dataset()
    trainer, records = planned_trainer(policy, tmp_path, eval_dataset=stream, args={"per_device_eval_batch_size": 8})
    trainer.train()
    trainer.evaluate()
    assert [row["eval_reward"] for row in trainer.state.log_history if "eval_reward" in row] == [0.5]
    assert [row.reward - row.bonus for row in records] == [1.0, 1.0, 0.0, 0.0] * 2
    assert [row.num_scored_tokens for row in records] == [len(text.split()) for text in RESPONSES] * 2
    assert trainer.state.log_history[0]["rewards/gar/mean"] == pytest.approx(0.5 + sum(r.bonus for r in records) / 8)


def test_responses_without_hope_are_reported(policy: Path, tmp_path: Path):
    wrong = {"responses": ("so \\boxed{8}",), "args": {"max_steps": 3}}
    trainer, _ = planned_trainer(policy, tmp_path, **wrong)
    with pytest.warns(UserWarning, match=r"WATCHDOG: For 3 steps \(1 to 3\) no response was right"):
        trainer.train()
    trainer, records = planned_trainer(policy, tmp_path, watchdog=WatchdogSettings(mode="stop", steps=2), **wrong)
    with pytest.warns(UserWarning, match="WATCHDOG"), raises(CollapseError):
        trainer.train()
    assert {row.step for row in records} == {1, 2}
    planned_trainer(policy, tmp_path, watchdog=WatchdogSettings(mode="off"), **wrong)[0].train()


@pytest.mark.parametrize("num_wrong", [4, 5])
def test_gold_answers_that_most_solutions_miss_are_reported(policy: Path, tmp_path: Path, num_wrong: int):
    rows = [row | {"answer": "9" if i < num_wrong else "7"} for i, row in enumerate(ROWS * 2)]
    text = r"5 of the first 8 expert solutions .* gold '9', the solution's answer '7' is wrong"
    with pytest.warns(UserWarning, match=text) if num_wrong == 5 else contextlib.nullcontext():
        planned_trainer(policy, tmp_path, train_dataset=rows)


def test_with_a_verifier_every_function_adds(policy: Path, tmp_path: Path):
    with Verifier(format="boxed", num_workers=1) as verifier:
        trainer, records = planned_trainer(
            policy, tmp_path, verifier=verifier, reward_funcs=reward_model(policy),
            reward_processing_classes=AutoTokenizer.from_pretrained(policy),
            reward=RewardSettings(format_penalty=-0.25),
        )  # fmt: skip
        trainer.train()
    assert [row.reward - row.bonus for row in records] == [1.0, 1.0, 0.0, -0.25] * 2
    mean = sum(row.reward for row in records) / 8  # the reward model's own mean is 0
    assert trainer.state.log_history[0]["reward"] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("kind", [list, Dataset.from_list])
def test_columns_may_have_other_names_and_several_solutions(policy: Path, tmp_path: Path, kind):
    others = {"gold": 7, "first": None, "prompt": "?"}
    rows = [others | {"question": row["prompt"], "second": [row["expert_solution"], "seven"]} for row in ROWS]
    names = {"prompt_field": "question", "answer_field": "gold", "expert_fields": ["first", "second"]}
    held_out = [row | {"gold": 8} for row in rows]
    data = {"train_dataset": kind(rows), "eval_dataset": {"test": kind(held_out)}}
    trainer, records = planned_trainer(
        policy, tmp_path, **data, **names, method="alignment-only", args={"per_device_eval_batch_size": 8}
    )
    trainer.train()
    one = {**names, "expert_fields": "second"}  # a text is one name
    assert [*planned_trainer(policy, tmp_path, **data, **one)[0]._problems.all] == [*trainer._problems.all]
    assert [row.verified for row in records] == [True, True, False, False] * 2
    trainer.evaluate()  # against their own answers, by the outcome alone, and without records
    assert [row["eval_reward"] for row in trainer.state.log_history if "eval_reward" in row] == [0.25]
    assert len(records) == 8
    assert all(len(problem.anchors) == 2 for problem in trainer._problems.all)


def change(**columns: Any) -> Dataset:
    return Dataset.from_list([{k: v for k, v in (row | columns).items() if v is not ...} for row in ROWS])


def test_a_data_set_of_another_shape_is_an_error(policy: Path, tmp_path: Path):
    for dataset, code in (
        (change(answer=...), "data"),
        (change(expert_solution=...), "no-anchors"),
        (change(prompt=[{"role": "user", "content": [{"type": "image"}]}]), "data"),
        (change(gar_problem=3), "reserved-column"),
        (DatasetDict({"train": change()}), "dataset-type"),
        (change().to_iterable_dataset().filter(lambda row: False), "no-rows"),
        (None, "dataset-type"),
        ([], "no-rows"),
    ):
        with raises(DataError, code):
            planned_trainer(policy, tmp_path, train_dataset=dataset)
    with raises(ConfigError, "wrong-type", "model is None"):
        GARTrainer(None, train_dataset=change())
    rows = [ROWS[0], ROWS[1], ROWS[2] | {"expert_solution": None}, ROWS[3]]
    with pytest.warns(UserWarning, match="1 of 4 rows read have no expert solution"):
        planned_trainer(policy, tmp_path, train_dataset=Dataset.from_list(rows))


def test_the_example_of_the_readme_trains(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (block,) = [block for block in python_blocks(ROOT / "README.md") if "GARTrainer" in block]
    assert len([line for line in block.splitlines() if line.strip()]) == 7
    Dataset.from_list(ROWS).to_json(tmp_path / "problems.jsonl")
    small = {"use_cpu": True, "bf16": False, "max_completion_length": 12, "num_generations": 4, "report_to": "none"}
    config = trl.GRPOConfig
    monkeypatch.setattr(trl, "GRPOConfig", lambda *a, **k: config(*a, **(k | small | {"max_steps": 1})))
    monkeypatch.chdir(tmp_path)
    block, found = re.subn('Qwen/Qwen3-[^"]+', str(policy), block)
    assert found == 1
    space: dict[str, Any] = {}
    exec(block, space)
    assert space["trainer"].state.global_step == 1


def test_a_model_that_reads_images_is_an_error(tmp_path: Path):
    processor = type("Processor", (ProcessorMixin,), {"__init__": lambda self: None})()
    with raises(ConfigError, "processing_class"):
        planned_trainer(tmp_path, tmp_path / "out", processing_class=processor)


def test_every_end_token_of_the_model_ends_a_response(policy: Path, tmp_path: Path):
    trainer, records = planned_trainer(policy, tmp_path)
    tokenizer, (first, second) = (
        trainer.processing_class,
        trainer.processing_class.convert_tokens_to_ids(["<eos>", "on"]),
    )
    trainer.eos_token_ids = [first, second]  # as TRL reads them from the model's generation config
    start = tokenizer.convert_tokens_to_ids("so")
    ids = [[start, first], [start, second], [start, start], [start, tokenizer.pad_token_id]]
    trainer._generate_single_turn = lambda prompts, *_, **__: ([ids[i % 4] for i in range(len(prompts))], None)
    trainer.train()
    assert [record.truncated for record in records] == [False, False, True, False] * 2


LONG = "on " * 60  # tokens, of a context of 64


def test_prompts_that_leave_no_room_for_a_response_are_refused(policy: Path, tmp_path: Path):
    rows = [*ROWS[:3], ROWS[3] | {"prompt": LONG}]
    rows = [row | {"prompt": row["prompt"] if isinstance(row["prompt"], str) else "3+4="} for row in rows]
    with raises(DataError, "long-prompt", "60 tokens", "64 tokens", "1 of 4"):
        planned_trainer(policy, tmp_path, train_dataset=rows)


def test_a_long_prompt_that_comes_later_is_warned_of_once(policy: Path, tmp_path: Path):
    trainer, _ = planned_trainer(policy, tmp_path, args={"max_steps": 2})
    trainer.train_dataset = Dataset.from_list([row | {"prompt": [{"role": "user", "content": LONG}]} for row in ROWS])
    with pytest.warns(UserWarning, match="A prompt has 60 tokens") as caught:
        trainer.train()
    assert len([each for each in caught if "A prompt has" in str(each.message)]) == 1


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")  # PEFT's, which goes on
@pytest.mark.parametrize("fields", [{"target_modules": ["embed_tokens"]}, {"modules_to_save": ["embed_tokens"]}])
def test_an_adapter_on_tied_embeddings_is_refused(tmp_path: Path, fields: dict[str, Any]):
    peft = pytest.importorskip("peft")
    folder = save_policy(tmp_path / "tied", tie_word_embeddings=True)
    with raises(ModelError, "adapted-head"):
        planned_trainer(folder, tmp_path, peft_config=peft.LoraConfig(r=2, **{"target_modules": ["q_proj"]} | fields))
