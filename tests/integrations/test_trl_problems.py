"""Data sets of Python users: rows are read when their group is sampled."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator
from datasets import Dataset, IterableDataset

from gar.data import problem_set
from gar.data.problem_set import ProblemSet
from gar.data.problems import problem_of, problems_of
from gar.errors import ConfigError, DataError
from gar.integrations.trl.problems import PROBLEM, ProblemRows
from gar.integrations.trl.ranks import TrlRanks
from gar.models.embedded import load_embedded
from gar.reader import Reader, SpanRule
from gar.records import RolloutRecord
from gar.settings import SignalSettings, SourceSettings
from tests.integrations.test_trl_dropin import ROWS, planned_trainer, policy
from tests.support.errors import raises
from tests.support.ranks import run_ranks

__all__ = ["policy"]


def row(number: int, **columns) -> dict:
    return {"id": f"p-{number}", "prompt": f"{number}+4=", "answer": "7", "expert_solution": "so 7"} | columns


def test_a_large_data_set_is_read_row_by_row(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    read = []
    monkeypatch.setattr(problem_set, "problem_of", lambda *a, **k: (read.append(k["place"]), problem_of(*a, **k))[1])
    rows = Dataset.from_list([row(i) for i in range(5000)]).shuffle(seed=3)
    held_out = {"test": Dataset.from_list([row(i) for i in range(5000)])}
    data = {"train_dataset": rows, "eval_dataset": held_out, "args": {"max_steps": 2}}
    trainer, records = planned_trainer(policy, tmp_path, **data, method="anchor-shuffled")
    assert len(read) < 256  # a sample of each data set, and the problems of two steps
    assert trainer.train_dataset._indices is not None  # nothing was copied
    trainer.train()
    assert len(read) < 500
    for record in records:
        assert record.problem_id == rows[record.group_index]["id"]


def test_anchors_are_read_once_a_group_and_anothers_after_its_own_prompt_as_the_run_renders_it():
    _, tokenizer = load_embedded()
    tokenizer.chat_template = "{% if shout %}99{% endif %}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    rule = SpanRule.from_settings(SignalSettings(span="response"), None, tokenizer)
    reader = Reader(tokenizer, rule, chat_template_kwargs={"shout": True})
    messages = [[{"role": "user", "content": text}] for text in ("3+4=", "5+6=")]
    rows = ProblemRows([row(i, prompt=prompt, expert_solution=f"{i}") for i, prompt in enumerate(messages)], {})
    given = ([0, 0, 1], [rows.all[i] for i in (0, 0, 1)], [[1], [2], [3]])
    own = rows.anchors(reader, *given)
    assert [own[i].usable[0].context_ids for i in (0, 1)] == [[1], [3]]  # the first response's prompt
    assert rows.anchors(reader, *given)[1] is own[1]
    rows.shuffle_anchors(seed=0)
    (sequence,) = rows.anchors(reader, *given)[0].usable
    expected = tokenizer.apply_chat_template(messages[1], tokenize=False, shout=True)
    assert expected == "995+6="
    assert sequence.context_ids == tokenizer(expected, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(sequence.ids) == "1"


def test_problems_of_a_data_set_are_checked_in_arrow(monkeypatch: pytest.MonkeyPatch):
    many = [row(i) for i in range(500)]
    for column, value, text in (
        ("prompt", None, "row 302: the prompt is empty"),
        ("answer", None, "row 302: the answer is empty"),
        ("id", "p-4", "row 302: the problem id 'p-4' was already used at row 5"),
    ):
        rows = many.copy()
        rows[301] = row(301, **{column: value})
        with pytest.raises(DataError, match=text):
            ProblemSet.of(Dataset.from_list(rows))
        without = Dataset.from_list(rows).select([i for i in range(500) if i != 301])
        assert len(ProblemSet.of(without)) == 499
    rows = Dataset.from_list([row(i, answer="" if i == 301 else "7") for i in range(500)])  # not in the sample
    found = ProblemSet.of(rows)  # a text is read with its row
    with pytest.raises(DataError, match="row 302: the answer is empty"):
        found[301]
    with pytest.raises(DataError, match="row 3: the problem id 'p-1' was already used at row 2"):
        ProblemSet.of(Dataset.from_list(many).select([0, 1, 1]))


@pytest.mark.parametrize("nothing", [None, "", []])
def test_anchored_problems_are_found_in_arrow(nothing):
    full = ["7", "so 7"] if nothing == [] else "7"
    rows = Dataset.from_list([row(i, expert_solution=full if i % 3 else nothing) for i in range(90)])
    chosen = rows.select([5, 3, 3, 7, 80])
    options = SourceSettings(answer_field="answer", expert_fields=("expert_solution",))
    assert ProblemSet.of(rows, options).anchored.tolist() == [i % 3 > 0 for i in range(90)]
    unnamed = chosen.remove_columns("id")
    found = ProblemSet.of(unnamed, options)
    assert found.anchored.tolist() == [bool(problem.anchors) for problem in found] == [True, False, False, True, True]
    assert [problem.id for problem in found[1:3]] == ["row 2", "row 3"]
    nested = Dataset.from_list([{**row(0), "teacher": {"text": "7"}}, {**row(1), "teacher": {"text": nothing or None}}])
    options = SourceSettings(expert_fields=("teacher.text",))
    assert ProblemSet.of(nested, options).anchored.tolist() == [True, False]
    made = rows.with_transform(lambda batch: {**batch, "expert_solution": ["9"] * len(batch["id"])})
    assert ProblemSet.of(made).anchored.tolist() == [True] * 90


def test_rows_without_an_expert_solution_are_counted_in_the_sample(policy: Path, tmp_path: Path):
    rows = [row(i, expert_solution="so 7" if i == 1 else None) for i in range(130)]
    with pytest.warns(UserWarning, match=r"6\d of 64 rows read have no expert solution"):
        planned_trainer(policy, tmp_path, train_dataset=Dataset.from_list(rows))
    with raises(DataError, "no-anchors"):
        planned_trainer(policy, tmp_path, train_dataset=Dataset.from_list(rows[2:]))
    interleaved = [row(i, expert_solution="so 7" if i % 2 else None) for i in range(1000)]
    with pytest.warns(UserWarning, match=r"[23]\d of 64 rows read have no expert solution"):
        planned_trainer(policy, tmp_path, train_dataset=Dataset.from_list(interleaved))


MANY = [{**ROWS[i % 4], "id": f"p-{i}"} for i in range(16)]
"""Every fourth has the same prompt and expert solution."""


def found_by_problem(records: list[RolloutRecord]) -> list[tuple[str, list[Any]]]:
    """Problem, alignments and rewards of each group of four."""
    groups = [records[start : start + 4] for start in range(0, len(records), 4)]
    assert all(len({(row.problem_id, row.group_index) for row in group}) == 1 for group in groups)
    return sorted((group[0].problem_id, [(row.alignment, row.reward) for row in group]) for group in groups)


def trained_rows(policy: Path, out: Path, data: Any, args: dict[str, Any]) -> list[RolloutRecord]:
    """The records of a trainer whose weights stay as they are. On the main process all, else none."""
    sizes = {"max_steps": 4, "learning_rate": 0.0, "per_device_train_batch_size": 8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer, records = planned_trainer(policy, out, train_dataset=data, args=sizes | args)
        trainer.train()
    return records


def on_ranks(policy: Path, out: Path, shards: int, args: dict[str, Any]) -> list[RolloutRecord]:
    return trained_rows(policy, out, Dataset.from_list(MANY).to_iterable_dataset(num_shards=shards), args)


@pytest.fixture(scope="module")
def of_a_table(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    records = trained_rows(policy, tmp_path_factory.mktemp("table"), Dataset.from_list(MANY), {"max_steps": 8})
    return dict(found_by_problem(records))


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize(("shards", "args"), [(1, {}), (4, {}), (16, {}), (8, {"steps_per_generation": 2})])
def test_groups_of_a_stream_are_those_of_its_data_set(policy, tmp_path, of_a_table, shards, args, shuffled):
    records = on_ranks(policy, tmp_path, shards, args | {"shuffle_dataset": shuffled})
    found = found_by_problem(records)
    assert len(found) == 8
    assert len({problem for problem, _ in found}) == 8
    for problem, values in found:
        assert values == of_a_table[problem]


@pytest.mark.dist
@pytest.mark.parametrize("shards", [1, 4])  # one is read by all ranks, several are divided
def test_groups_of_a_stream_on_two_ranks_are_those_of_its_data_set(policy, tmp_path, of_a_table, shards):
    records, others = run_ranks(on_ranks, 2, tmp_path / "ranks", policy, tmp_path / "out", shards, {})
    found = found_by_problem(records)
    assert others == []
    assert len(found) == 16
    for problem, values in found:
        assert values == of_a_table[problem]


def refused(policy: Path, out: Path) -> str:
    with pytest.raises(DataError) as caught:
        on_ranks(policy, out, 2, {"per_device_train_batch_size": 2})
    return str(caught.value)


@pytest.mark.dist
def test_a_group_with_the_problems_of_two_ranks_is_refused_by_both(policy, tmp_path):
    said = run_ranks(refused, 2, tmp_path / "ranks", policy, tmp_path / "out")
    assert said[0] == said[1]
    assert "rows 1 to 4 of the batch are one group for TRL, and have different problems" in said[0]


def test_equal_problems_after_each_other_are_two_groups(policy, tmp_path):
    records = trained_rows(policy, tmp_path, Dataset.from_list([ROWS[0]] * 4).to_iterable_dataset(), {"max_steps": 1})
    assert [row.group_index for row in records[:8]] == [0] * 4 + [1] * 4
    assert len({row.problem_id for row in records}) == 1


def test_rows_of_a_stream_without_ids_are_named_by_their_prompts(policy, tmp_path):
    stream = Dataset.from_list(ROWS).to_iterable_dataset(num_shards=4).with_format("numpy")
    records = trained_rows(policy, tmp_path, stream, {"max_steps": 2})
    assert len({row.problem_id for row in records}) == 2  # two prompts
    assert all(row.problem_id.startswith("prompt-") for row in records)


BY_NUMBER = pytest.mark.parametrize("method", ["anchor-shuffled", "anchor-random"])


@BY_NUMBER
def test_a_method_that_reads_the_number_of_a_row_takes_no_stream(policy: Path, tmp_path: Path, method: str):
    with raises(ConfigError, "stream"):
        planned_trainer(
            policy, tmp_path, train_dataset=Dataset.from_list(ROWS).to_iterable_dataset(), method=method,
            args={"max_steps": 1},
        )  # fmt: skip


@pytest.mark.parametrize("held", ["rows", "problems"])
@pytest.mark.parametrize("change", ["select", "shuffle", "map", "filter", "new"])
def test_a_data_set_may_be_replaced(policy, tmp_path, of_a_table, held, change):
    data = Dataset.from_list(MANY)
    if held == "problems":
        data = problems_of(data.remove_columns("solution"), SourceSettings())
    trainer, records = planned_trainer(policy, tmp_path, train_dataset=data, args={"max_steps": 2, "learning_rate": 0})
    changes: dict[str, Callable[[Any], Any]] = {
        "select": lambda rows: rows.select([9, 4, 3, 2]),
        "shuffle": lambda rows: rows.shuffle(seed=1),
        "map": lambda rows: rows.map(lambda row: {"note": "x"}),
        "filter": lambda rows: rows.filter(lambda row: True),
        "new": lambda rows: Dataset.from_list(MANY).select(range(4, 8)),
    }
    trainer.train_dataset = changes[change](trainer.train_dataset)
    trainer.train()
    found = found_by_problem(records)
    assert len(found) == 4
    for problem, values in found:
        assert values == of_a_table[problem]


@BY_NUMBER
def test_a_method_that_reads_the_number_of_a_row_takes_no_replaced_data_set(policy, tmp_path, method):
    trainer, _ = planned_trainer(policy, tmp_path, train_dataset=Dataset.from_list(MANY), method=method)
    trainer.evaluate(Dataset.from_list(MANY[:8]))  # whose rows have no number either
    trainer.train_dataset = Dataset.from_list(MANY)
    with raises(ConfigError, "replaced-dataset"):
        trainer.train()


def test_rows_carry_the_problem_in_every_schema(policy: Path):
    gsm8k = Dataset.from_list([{"question": "3+4=", "answer": "so 7\n#### 7", "prompt": "?"}])
    for rows in (gsm8k, gsm8k.remove_columns("prompt").to_iterable_dataset()):
        read = ProblemRows(rows, {"prompt_field": "question"} if "prompt" in (rows.column_names or []) else {})
        (completed,) = read.training
        assert completed["prompt"] == "3+4="
        given, groups, found = read.taken([completed], TrlRanks(Accelerator(cpu=True)), group_size=1)
        assert groups == [0]
        assert PROBLEM not in given[0]
        assert [(each.prompt, each.answer, each.anchors) for each in found] == [
            (each.prompt, each.answer, each.anchors) for each in read.all
        ]


def test_rows_keep_what_the_first_one_lacks():
    rows = [{"prompt": "0+4=", "answer": "4"}, row(1, expert_solution="1 + 4 = 5", level=3)]
    held = ProblemRows(rows, {})
    given, _, found = held.taken([held.training[i] for i in range(2)], TrlRanks(Accelerator(cpu=True)), group_size=1)
    assert [len(problem.anchors) for problem in found] == [0, 1]
    assert [each["level"] for each in given] == [None, 3]


def test_traps_in_the_data_are_warned_of(policy: Path, tmp_path: Path):
    marked = [row(i, expert_solution="so <<3+4=7>>7") for i in range(4)]
    with pytest.warns(UserWarning, match="Of 4 problems read, 4 have calculator marks"):
        planned_trainer(policy, tmp_path, train_dataset=marked)


def test_texts_beside_chat_messages_become_messages():
    rows = [row(0), row(1, prompt=[{"role": "user", "content": "1+4="}]), row(2), row(3)]
    as_messages = [{**each, "prompt": [{"role": "user", "content": f"{i}+4="}]} for i, each in enumerate(rows)]
    for given in (rows, problems_of(rows)):
        held = ProblemRows(given, {})
        assert [each.prompt for each in held.all] == [each["prompt"] for each in as_messages]
        assert [held.training[i]["prompt"] for i in range(4)] == [each["prompt"] for each in as_messages]


def test_a_batch_of_a_stream_with_texts_and_messages_is_refused():
    rows = [row(0), row(1, prompt=[{"role": "user", "content": "1+4="}])]
    held = ProblemRows(IterableDataset.from_generator(lambda: iter(rows)), {})
    with raises(DataError, code="mixed-prompts"):
        held.taken(held.training, TrlRanks(Accelerator()), group_size=1)
