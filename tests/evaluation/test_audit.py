"""`audited`: ours beside math-verify and equal text; which responses deserve a look; where they are read from."""

from pathlib import Path
from typing import Any

import pytest

from gar.errors import DataError, RecordError
from gar.evaluation.audit import AuditedSample, ScoredSample, audited, plain_math_verify, read_samples, same_text
from gar.types import Status
from tests.files import write_jsonl


def sample(response: str, gold: str = "7", status: Status = Status.OK, **others: Any) -> ScoredSample:
    given = {"place": "a.jsonl:1", "prompt": "?", "answer": "7", "verified": status is Status.OK} | others
    return ScoredSample(response=response, gold=gold, status=status, **given)


@pytest.mark.parametrize(
    ("ours", "others", "kind"),
    [
        (sample("7"), {"math_verify": Status.OK, "same_text": True}, None),
        (sample("7"), {"math_verify": Status.OK, "same_text": False}, None),
        (sample("8", status=Status.WRONG), {"math_verify": Status.WRONG, "same_text": False}, None),
        (sample("8", status=Status.WRONG), {"math_verify": Status.TIMEOUT, "same_text": False}, None),
        (sample("7", status=Status.WRONG), {"math_verify": Status.OK, "same_text": True}, "same text"),
        (sample("7", status=Status.ERROR), {"math_verify": Status.ERROR, "same_text": True}, "same text"),
        (sample("7", status=Status.WRONG), {"math_verify": Status.OK, "same_text": False}, "math-verify alone"),
        (sample("7"), {"math_verify": Status.WRONG, "same_text": False}, "ours alone"),
        (sample("7"), {"math_verify": Status.WRONG, "same_text": True}, None),
        (sample("7", status=Status.TIMEOUT), {"math_verify": Status.OK, "same_text": False}, "undecided"),
        (sample("7", status=Status.UNPARSED), {"math_verify": None, "same_text": False}, "undecided"),
    ],
)
def test_kind_table(ours: ScoredSample, others: dict[str, Any], kind: str | None) -> None:
    assert AuditedSample(sample=ours, **others).kind == kind


@pytest.mark.parametrize(
    ("response", "gold", "status"),
    [
        (r"so \boxed{\frac{14}{2}}", "7", Status.OK),
        ("the answer is 7", "$7$", Status.OK),
        (r"\boxed{8}", "7", Status.WRONG),
        ("I cannot say", "7", Status.UNPARSED),
        (r"\boxed{7}", "$ $", Status.ERROR),
    ],
)
def test_plain_math_verify_statuses(response: str, gold: str, status: Status) -> None:
    assert plain_math_verify(response, gold).status == status


def test_same_text_ignores_what_is_no_content() -> None:
    assert same_text(" 7. ", "$7$")
    assert same_text("(0,0)", "(0, 0)")
    assert not same_text("7.0", "7")
    assert not same_text(None, "7")


def test_audited_keeps_the_order_and_outlives_endless_answers() -> None:
    samples = [
        sample(r"\boxed{7}"),
        sample(r"\boxed{9^{9^{9^9}}}", status=Status.TIMEOUT, answer="9^{9^{9^9}}"),
        sample("(C)", gold="C", answer="C", choice=True),
        sample(r"\boxed{8}", status=Status.WRONG, answer="8"),
    ]
    cases = list(audited(samples, timeout_seconds=2.0))
    assert [case.sample for case in cases] == samples
    assert [case.math_verify for case in cases] == [Status.OK, Status.TIMEOUT, None, Status.WRONG]
    assert [case.same_text for case in cases] == [True, False, True, False]
    assert [case.now for case in cases] == [Status.OK, Status.WRONG, None, Status.WRONG]
    assert [case.kind for case in cases] == [None, "undecided", None, None]


def test_audited_lists_what_the_rules_of_today_change() -> None:
    samples = [
        sample(r"\boxed{3+4}", answer="3+4"),
        sample("<answer>The answer is 7.</answer>", answer="The answer is 7.", status=Status.WRONG),
        sample(r"\boxed{\frac{14}{2}}", answer=r"\frac{14}{2}", prompt=r"What is $\frac{14}{2}$?"),
        sample(r"\boxed{8}", answer="8", status=Status.WRONG),
    ]
    assert [case.changed for case in audited(samples)] == [True, True, True, False]


def test_audited_needs_a_window_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gar.evaluation.audit._SAMPLES_PER_WINDOW", 2)
    taken = []

    def samples():
        for number in range(5):
            taken.append(number)
            yield sample(rf"\boxed{{{number}}}", gold="3", answer=str(number))

    cases = audited(samples())
    assert next(cases).math_verify == Status.WRONG
    assert taken == [0, 1]
    assert [case.math_verify for case in cases] == [Status.WRONG, Status.WRONG, Status.OK, Status.WRONG]


def write(path: Path, *rows: dict[str, Any]) -> Path:
    return Path(write_jsonl(path, rows))


ROW = {"prompt": "3+4", "response": r"A: \boxed{7}", "answer": "7", "status": "ok", "verified": True}


def test_read_samples_answer_is_the_gold_answer_unless_there_is_gold(tmp_path: Path) -> None:
    tagged = "<think> 8 </think> <answer> 6 </answer> and 9"
    path = write(tmp_path / "a.jsonl", ROW, ROW | {"gold": "8"}, ROW | {"response": tagged, "detail": "why"})
    first, second, third = read_samples(path)
    assert first == sample(ROW["response"], place=f"{path}:1", prompt="3+4")
    assert (second.gold, second.answer) == ("8", "7")
    assert (third.answer, third.detail, third.place) == ("6", "why", f"{path}:3")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"response": None}, r"a\.jsonl:1: nothing in 'response'.*Are these graded responses\?"),
        ({"answer": None}, "nothing in 'answer'"),
        ({"status": "fine"}, "unknown status 'fine', expected one of ok, wrong, unparsed, timeout, error"),
        ({"verified": None}, "nothing in 'verified'"),
    ],
)
def test_read_samples_refuses_rows_that_are_not_graded(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "a.jsonl", ROW | change)
    with pytest.raises(DataError, match=message):
        list(read_samples(path))


GENERATED = {"tokens": [1], "stop": "end", "prefilled_think": False}
GRADED = {
    "correct": True, "well_formatted": True, "vote": None, "num_tokens": 1, "truncated": False, "format": "boxed",
}  # fmt: skip


def evaluation(folder: Path, *verdicts: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "set.json").write_text("{}")
    problem = {"id": "p", "prompt": "3+4", "answer": "7", "num_choices": 0, "category": ""}
    write(folder / "problems.jsonl", problem, problem | {"id": "q", "answer": "B", "num_choices": 4})
    write(
        folder / "samples.jsonl",
        {"problem": "p", "sample": 0, "text": r"\boxed{7}"} | GENERATED,
        {"problem": "q", "sample": 0, "text": r"\boxed{C}"} | GENERATED,
        {"problem": "q", "sample": 1, "text": r"\boxed{B}"} | GENERATED,
    )
    write(folder / "verdicts.jsonl", *verdicts)
    return folder


def test_read_samples_joins_samples_and_verdicts_of_an_evaluation(tmp_path: Path) -> None:
    right = {"problem": "p", "sample": 0, "status": "ok", "verified": True, "answer": "7", "detail": ""} | GRADED
    wrong = right | {"problem": "q", "status": "wrong", "verified": False, "answer": "C"}
    evaluation(tmp_path / "math", wrong, right)
    first, second = read_samples(tmp_path)
    assert first == sample(r"\boxed{7}", place="math p #0", prompt="3+4")
    assert (second.place, second.choice, second.status, second.gold) == ("math q #0", True, Status.WRONG, "B")


def test_read_samples_refuses_what_was_never_graded(tmp_path: Path) -> None:
    evaluation(tmp_path / "math")
    with pytest.raises(DataError, match=r"no verdicts yet\. `gar eval score .*math` makes them"):
        list(read_samples(tmp_path))
    with pytest.raises(RecordError, match="no such folder"):
        list(read_samples(tmp_path / "nothing"))
