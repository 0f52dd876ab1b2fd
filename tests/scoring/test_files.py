"""`score_file`: the scorer's numbers by row, bad input by name, and nothing lost or repeated by a kill."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gar import GARScorer, ResponseGroup
from gar.data.arithmetic import load_arithmetic
from gar.data.prompts import render_prompt
from gar.errors import ConfigError, DataError, LockedError, ModelError
from gar.models.embedded import load_embedded
from gar.records.lock import writer_lock
from gar.scoring.files import score_file
from gar.scoring.io import ScoreFiles, check_input, score_schema
from gar.scoring.job import ScoreJob
from gar.scoring.model import choose_device
from gar.verify import Verifier
from tests.scoring.test_scorer import written
from tests.support.errors import raises

RESPONSES = 7

Row = dict[str, Any]


def rows_of(count: int) -> list[Row]:
    """Problems with a right response in each method and wording, and a wrong one."""
    return [
        {
            "id": problem.id, "prompt": problem.prompt, "responses": written(problem)[:RESPONSES],
            "answer": problem.answer, "expert_solution": problem.anchors[0].text,
        }
        for problem in load_arithmetic("test")[:count]
    ]  # fmt: skip


class Scored(NamedTuple):
    files: ScoreFiles
    summary: dict[str, Any]


@pytest.fixture
def score(tmp_path: Path) -> Callable[..., Scored]:
    def score(file: str, *, out: str = "scores.jsonl", model: str = "embedded", **settings: Any) -> Scored:
        verify = {"num_workers": 1} | settings.pop("verify", {})
        values = {"file": file, "model": model, "out": tmp_path / out, "verify": verify}
        job = ScoreJob.model_validate(values | settings)
        return Scored(ScoreFiles(job), score_file(job, check_input(job), command=["gar", "score"]))

    return score


def save_policy(folder: Path, model: Any, tokenizer: Any) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def read(scored: Scored) -> list[Row]:
    return [json.loads(line) for line in scored.files.out.read_text().splitlines()]


def test_score_file_writes_the_scorers_numbers_of_each_row(write_rows, score):
    rows = [*rows_of(2), rows_of(3)[2] | {"expert_solution": None}]
    scored = score(write_rows(*rows), tokens=True)
    with Verifier(num_workers=1) as verifier:
        named = ("id", "prompt", "responses", "answer")
        groups = [
            ResponseGroup(**{name: row[name] for name in named}, anchors=[*filter(None, [row["expert_solution"]])])
            for row in rows
        ]
        expected = GARScorer(*load_embedded(), verifier=verifier, score_all=True).score(groups, tokens=True)
    found = read(scored)
    assert len(found) == 3 * RESPONSES
    for row, one in zip(found, expected, strict=True):
        assert list(row) == score_schema(tokens=True).names
        source = {"line": one.group_index + 1, "response_field": "responses", "gold": rows[one.group_index]["answer"]}
        assert row == source | {name: getattr(one, name) for name in row if name not in source}
    assert all(row["alignment"] is not None for row in found[: 2 * RESPONSES])  # of the wrong ones too
    table = pq.read_table(score(write_rows(*rows), tokens=True, out="scores.parquet").files.out)
    assert table.schema.equals(score_schema(tokens=True))
    assert table.to_pylist() == found
    assert table["alignment"].null_count == RESPONSES  # of the row without an expert solution
    assert score_schema(tokens=False).field("alignment").type == pa.float64()


def test_score_file_scores_as_well_window_by_window(write_rows, score):
    file = write_rows(*rows_of(4))
    whole = read(score(file, out="whole.jsonl"))
    for window in (1, 3 * RESPONSES + 1):
        parts = read(score(file, out=f"{window}.jsonl", window=window))
        for one, other in zip(parts, whole, strict=True):
            # Batches of different widths round differently. Advantages divide by the small spread of a group.
            assert {**one, "advantage": None} == pytest.approx({**other, "advantage": None}, abs=2e-6)
            assert one["advantage"] == pytest.approx(other["advantage"], abs=1e-3)
    eligible = read(score(file, out="eligible.jsonl", eligible_only=True))
    assert [row["signal"] for row in eligible] == ["scored" if row["eligible"] else "skipped" for row in eligible]
    assert [row["reward"] for row in eligible] == pytest.approx([row["reward"] for row in whole], abs=1e-6)


def test_score_file_reads_the_rows_columns_and_prompts_that_it_is_told(write_rows, score):
    row, *rest = rows_of(4)
    scored = score(write_rows(row, rest[0], "{broken", *rest[1:]), limit=3)
    assert {found["line"] for found in read(scored)} == {1, 2}
    assert (scored.summary["rows"], scored.summary["bad_rows"]) == (3, 1)
    columns = ("large.text", "small.text")
    split = row | {"small": {"text": row["responses"][0]}, "large": {"text": row["responses"][1]}}
    found = read(score(write_rows(split), responses_fields=columns, out="columns.jsonl"))
    assert [(one["response_index"], one["response_field"]) for one in found] == [*enumerate(columns)]
    scored = score(write_rows(row, row | {"prompt": [3, 4]}), template="think-answer", out="template.jsonl")
    rendered = row | {"prompt": render_prompt(row["prompt"], "think-answer", chat=False)}
    assert read(scored) == read(score(write_rows(rendered), out="rendered.jsonl"))
    assert "each entry must be a chat message" in scored.files.errors.read_text()


def test_score_file_summary_by_hand(write_rows, score):
    """Groups of equal right texts, different right texts, wrong texts, and both. Only the second gets a spread."""
    row = rows_of(1)[0]
    right, other, *_, wrong = row["responses"]
    rows = [
        row | {"responses": [right, right]},
        row | {"responses": [right, other]},
        row | {"responses": [wrong, wrong]},
        row | {"responses": [right, other, wrong, right.replace("<answer>", "")]},
    ]
    scored = score(write_rows(*rows), window=7)
    summary, found = scored.summary, read(scored)
    assert (summary["rows"], summary["groups"], summary["responses"], summary["bad_rows"]) == (4, 4, 10, 0)
    assert summary["repeated_prompts"] == 3
    assert (summary["verified"], summary["eligible"], summary["signal"]) == (6, 6, {"scored": 10})
    assert summary["verification"] == {"ok": 6, "wrong": 3, "unparsed": 1}
    assert summary["outcome_mean"] == pytest.approx((6 - 0.6) / 10)
    assert summary["reward_mean"] == pytest.approx(sum(row["reward"] for row in found) / 10)
    assert summary["reward_mean"] > summary["outcome_mean"]
    assert summary["zero_std_group_fraction"] == {"before": 3 / 4, "after": 2 / 4}
    verified = sorted(row["alignment"] for row in found if row["verified"])
    alignment = summary["alignment"]
    assert (alignment["verified"]["count"], alignment["others"]["count"]) == (6, 4)
    assert alignment["verified"]["quantiles"]["0.5"] == pytest.approx((verified[2] + verified[3]) / 2)
    assert summary["tokens"] == sum(row["num_tokens"] for row in found)
    assert summary["seconds"] > 0
    run = json.loads(scored.files.run.read_text())
    assert (run["command"], run["job"]["window"], run["device"]) == ("gar score", 7, "cpu")
    assert run["summary"] == summary
    assert {"gar", "python", "torch", "transformers"} <= set(run["versions"])


def test_score_file_leaves_bad_rows_out_and_names_them(write_rows, score, tmp_path):
    """Broken rows, and prompts that the chat template rejects."""
    model, tokenizer = load_embedded()
    tokenizer.chat_template = (
        "{% if messages[0]['role'] != 'user' %}{{ raise_exception('the user must speak first') }}{% endif %}"
        "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )
    save_policy(tmp_path / "chat", model, tokenizer)
    row = rows_of(1)[0]
    chat, bad = (row | {"prompt": [{"role": role, "content": row["prompt"]}]} for role in ("user", "assistant"))
    file = write_rows(row, "{broken", {"question": "3+4="}, bad, row | {"responses": [7]}, chat)
    scored = score(file, model=str(tmp_path / "chat"))
    found = read(scored)
    assert [row["line"] for row in found] == [1] * RESPONSES + [6] * RESPONSES
    alignments = [row["alignment"] for row in found]
    assert alignments[:RESPONSES] == pytest.approx(alignments[RESPONSES:], abs=2e-6)
    errors = [json.loads(line) for line in scored.files.errors.read_text().splitlines()]
    assert [error["place"] for error in errors] == [f"{file}:{line}" for line in (2, 3, 4, 5)]
    assert all(error["error"] for error in errors)
    assert "the user must speak first" in errors[2]["error"]
    assert (scored.summary["rows"], scored.summary["bad_rows"]) == (6, 4)


def test_score_file_names_what_is_wrong_before_it_loads_a_model(write_rows, score, tmp_path):
    good, named = write_rows(*rows_of(1)), write_rows(*rows_of(1), name="a.errors.jsonl")
    for file, changes, kind, code in (
        (write_rows({"question": "3+4="}, "{", name="bad.jsonl"), {}, DataError, "no-rows"),
        (write_rows("", name="empty.jsonl"), {}, DataError, "no-rows"),
        (good, {"expert_fields": ("solution", "cot")}, DataError, "no-anchors"),
        (str(tmp_path / "row.jsonl"), {}, DataError, "data"),
        (good, {"signal": {"policy": "initial"}}, ConfigError, "signal.policy"),
        (good, {"device": "tpu:0"}, ConfigError, "device"),
        (good, {"device": "cpu:x"}, ConfigError, "device"),
        (good, {"out": "rows.jsonl", "overwrite": True}, ConfigError, "overwrites-input"),
        (named, {"out": "a.parquet", "overwrite": True}, ConfigError, "overwrites-input"),
        (good, {"out": "scores.csv"}, ConfigError, None),
    ):
        with raises(kind, code):
            score(file, model=str(tmp_path / "nowhere"), **changes)
    assert len((tmp_path / "scores.errors.jsonl").read_text().splitlines()) == 2  # of the first


@pytest.mark.parametrize(("found", "device"), [(None, "cpu"), ("cuda", "cuda"), ("mps", "cpu")])
def test_choose_device_takes_an_accelerator_that_has_float64(monkeypatch, found, device):
    accelerator = found and torch.device(found)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: accelerator)
    assert choose_device(None, needs_float64=True) == torch.device(device)
    assert choose_device(None) == torch.device(found or "cpu")


# tests/faults kills the command at its write operations.
def test_score_file_goes_on_with_the_same_settings_input_and_model_alone(write_rows, score, monkeypatch, tmp_path):
    rows = rows_of(3)
    file = write_rows(*rows)
    whole = score(file, out="whole.jsonl", window=RESPONSES).files.out.read_bytes()
    first = score(write_rows(*rows_of(1), "{broken", name="first.jsonl")).files
    before = first.out.read_bytes()
    with raises(ConfigError, "output-exists"):
        score(file)
    windows, score_groups = [1], GARScorer.score

    def one_window(self: GARScorer, groups: Any, **options: Any) -> Any:
        if not windows:
            raise torch.OutOfMemoryError("tried to allocate 2 GiB.")
        windows.pop()
        return score_groups(self, groups, **options)

    with monkeypatch.context() as patch, raises(ModelError, "out-of-memory"):
        patch.setattr(GARScorer, "score", one_window)
        score(file, window=RESPONSES, overwrite=True)
    assert first.out.read_bytes() == before  # until there is something to replace it with
    first.out.unlink()
    model, tokenizer = load_embedded()
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    save_policy(tmp_path / "other", model, tokenizer)
    nowhere = {"model": str(tmp_path / "nowhere")}  # rejected before it is loaded
    for changes in (
        {"signal": {"kind": "gradient"}, **nowhere},
        {"verify": {"tags": {"think_open": "[t]"}}, **nowhere},
        {"tokens": True, **nowhere},
        {"model": str(tmp_path / "other")},
    ):
        with raises(ConfigError, "other-settings"):
            score(file, **changes)
    changed = write_rows(*rows[1:], rows[0])
    with raises(ConfigError, "other-settings"):
        score(changed)
    write_rows(*rows)
    with writer_lock(first.out.with_name("scores.partial.jsonl")), raises(LockedError):
        score(file, window=RESPONSES)
    free = {"signal": {"max_batch_tokens": 9999}, "verify": {"num_workers": 2}}  # these may differ
    assert score(file, window=RESPONSES, **free).files.out.read_bytes() == whole
    write_rows(*rows[1:], rows[0])
    assert len(read(score(changed, overwrite=True))) == 3 * RESPONSES
    assert not first.errors.exists()  # they were the other file's
