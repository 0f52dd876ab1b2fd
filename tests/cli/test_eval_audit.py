"""`gar eval audit`: graded responses in, disagreements side by side out."""

import json
from pathlib import Path
from typing import Any

import pytest

from gar.cli.eval_audit import main
from tests.files import write_jsonl


def row(response: str, status: str, gold: str = "7", **others: Any) -> dict[str, Any]:
    return {"prompt": "?", "response": response, "answer": gold, "status": status, "verified": status == "ok"} | others


@pytest.fixture
def graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    rows = [
        row(r"\boxed{7}", "ok"),
        row(r"\boxed{8}", "wrong"),
        row(r"\boxed{7}", "wrong"),
        row(r"\boxed{\frac{14}{2}}", "wrong"),
        row(r"\boxed{9}", "ok"),
        row("\\boxed{9\x1b[31m}", "unparsed", detail="[bold]no number"),
    ]
    return Path(write_jsonl(tmp_path / "graded.jsonl", rows))


def test_audit_shows_each_kind_and_writes_all_cases(graded: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "cases.jsonl"
    assert main([str(graded), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "6 responses" in printed
    for line in (
        "1 not right by our verdict, though the answer has the gold answer's text",
        "1 right by math-verify, wrong by our verdict",
        "1 right by our verdict, wrong by math-verify, and the text differs",
        "1 without our verdict: unparsed, timeout or error",
        "3 right or not right as recorded, and the opposite by the rules of this version",
    ):
        assert line in printed.splitlines()
    assert "\x1b[31m" not in printed
    assert "[bold]no number" in printed
    cases = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(case["kind"], case["place"].rpartition(":")[2]) for case in cases] == [
        ("same text", "3"),
        ("math-verify alone", "4"),
        ("ours alone", "5"),
        ("undecided", "6"),
    ]
    assert cases[1]["math_verify"] == "ok"
    assert [case["now"] for case in cases] == ["ok", "ok", "wrong", "unparsed"]
    assert cases[1]["response"] == r"\boxed{\frac{14}{2}}"


def test_audit_shows_as_many_examples_as_asked_for(graded: Path, capsys) -> None:
    assert main([str(graded), "--examples", "0"]) == 0
    printed = capsys.readouterr().out
    assert "1 right by math-verify, wrong by our verdict" in printed
    assert "graded.jsonl:4" not in printed
