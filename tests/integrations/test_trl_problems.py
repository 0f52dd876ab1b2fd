"""Data sets of Python users: rows are read when their group is sampled."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from datasets import Dataset

from gar.data import table
from gar.data.problems import problem_of
from gar.data.table import DatasetProblems
from gar.errors import ConfigError, DataError
from gar.integrations.trl import problems
from gar.integrations.trl.problems import PROBLEM, ProblemRows
from gar.models.embedded import load_embedded
from gar.reader import Reader, SpanRule
from gar.settings import SignalSettings, SourceSettings
from tests.integrations.test_trl_dropin import ROWS, planned_trainer, policy
from tests.support.errors import raises

__all__ = ["policy"]


def row(number: int, **columns) -> dict:
    return {"id": f"p-{number}", "prompt": f"{number}+4=", "answer": "7", "expert_solution": "so 7"} | columns


def test_a_large_data_set_is_read_row_by_row(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    read = []
    for module in (table, problems):
        monkeypatch.setattr(module, "problem_of", lambda *a, **k: (read.append(k["number"]), problem_of(*a, **k))[1])
    rows = Dataset.from_list([row(i) for i in range(5000)]).shuffle(seed=3)
    held_out = {"test": Dataset.from_list([row(i) for i in range(5000)])}
    data = {"train_dataset": rows, "eval_dataset": held_out, "args": {"max_steps": 2}}
    trainer, records = planned_trainer(policy, tmp_path, **data, method="anchor-shuffled")
    assert len(read) < 400  # a sample of each data set, a few times
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
            DatasetProblems(Dataset.from_list(rows), SourceSettings())
        without = Dataset.from_list(rows).select([i for i in range(500) if i != 301])
        assert len(DatasetProblems(without, SourceSettings())) == 499
    rows = Dataset.from_list([row(i, answer="" if i == 301 else "7") for i in range(500)])  # not in the sample
    found = DatasetProblems(rows, SourceSettings())  # a text is read with its row
    with pytest.raises(DataError, match="row 302: the answer is empty"):
        found[301]
    with pytest.raises(DataError, match="row 3: the problem id 'p-1' was already used at row 2"):
        DatasetProblems(Dataset.from_list(many).select([0, 1, 1]), SourceSettings())


@pytest.mark.parametrize("nothing", [None, "", []])
def test_anchored_problems_are_found_in_arrow(nothing):
    full = ["7", "so 7"] if nothing == [] else "7"
    rows = Dataset.from_list([row(i, expert_solution=full if i % 3 else nothing) for i in range(90)])
    chosen = rows.select([5, 3, 3, 7, 80])
    options = SourceSettings(answer_field="answer", expert_fields=("expert_solution",))
    assert DatasetProblems(rows, options).anchored.tolist() == [i % 3 > 0 for i in range(90)]
    unnamed = chosen.remove_columns("id")
    found = DatasetProblems(unnamed, options)
    assert found.anchored.tolist() == [bool(problem.anchors) for problem in found] == [True, False, False, True, True]
    assert [problem.id for problem in found[1:3]] == ["row 2", "row 3"]
    nested = Dataset.from_list([{**row(0), "teacher": {"text": "7"}}, {**row(1), "teacher": {"text": nothing or None}}])
    options = SourceSettings(expert_fields=("teacher.text",))
    assert DatasetProblems(nested, options).anchored.tolist() == [True, False]
    made = rows.with_transform(lambda batch: {**batch, "expert_solution": ["9"] * len(batch["id"])})
    assert DatasetProblems(made, SourceSettings()).anchored.tolist() == [True] * 90


def test_rows_without_an_expert_solution_are_counted_in_the_sample(policy: Path, tmp_path: Path):
    rows = [row(i, expert_solution="so 7" if i == 1 else None) for i in range(130)]
    with pytest.warns(UserWarning, match=r"6\d of 64 rows read have no expert solution"):
        planned_trainer(policy, tmp_path, train_dataset=Dataset.from_list(rows))
    with raises(DataError, "no-anchors"):
        planned_trainer(policy, tmp_path, train_dataset=Dataset.from_list(rows[2:]))
    interleaved = [row(i, expert_solution="so 7" if i % 2 else None) for i in range(1000)]
    with pytest.warns(UserWarning, match=r"[23]\d of 64 rows read have no expert solution"):
        planned_trainer(policy, tmp_path, train_dataset=Dataset.from_list(interleaved))


def test_a_stream_trains_as_its_data_set_does(policy: Path, tmp_path: Path):
    rows = Dataset.from_list([{**each, "id": f"p-{i}"} for i, each in enumerate(ROWS)])
    kept = []
    for name, data in (("set", rows), ("stream", rows.to_iterable_dataset())):
        data = {"train_dataset": data, "eval_dataset": data, "args": {"max_steps": 2, "shuffle_dataset": False}}
        with pytest.warns(UserWarning, match="only its first rows") if name == "stream" else nullcontext():
            trainer, records = planned_trainer(policy, tmp_path / name, **data)
        trainer.train()
        trainer.evaluate()
        kept.append([(each.problem_id, each.group_index, each.alignment, each.reward) for each in records])
    assert kept[0] == kept[1]
    assert len({record[0] for record in kept[1]}) == 4
    with raises(ConfigError, "stream"):
        planned_trainer(
            policy, tmp_path, train_dataset=rows.to_iterable_dataset(), method="anchor-shuffled", args={"max_steps": 1}
        )


def test_rows_carry_the_problem_in_every_schema(policy: Path):
    gsm8k = Dataset.from_list([{"question": "3+4=", "answer": "so 7\n#### 7", "prompt": "?"}])
    for rows in (gsm8k, gsm8k.remove_columns("prompt").to_iterable_dataset()):
        read = ProblemRows(rows, {"prompt_field": "question"} if "prompt" in (rows.column_names or []) else {})
        (completed,) = read.training
        assert completed["prompt"] == "3+4="
        given, numbers, found = read.taken([completed])
        assert numbers == [0]
        assert PROBLEM not in given[0]
        assert found == list(read.all)
