"""How a command ends where every response failed in the same way: one sentence, the flag that mends it, status 3."""

import re
from pathlib import Path
from typing import Any

from gar.cli import outcomes
from gar.cli.outcomes import degenerate


def sentence_of(**changes: Any) -> str:
    values: dict[str, Any] = {"total": 12, "format": "think-answer", "well_formatted": 12, "statuses": {"ok": 12}}
    return degenerate(**values | changes)


def test_degenerate_says_nothing_of_an_ordinary_result():
    for changes in (
        {},
        {"statuses": {"wrong": 12}},  # hard problems are an ordinary result
        {"statuses": {"wrong": 1, "unparsed": 11}, "well_formatted": 1, "truncated": 11},
        {"statuses": {}},
    ):
        assert sentence_of(**changes) == ""


def test_degenerate_names_the_fault_and_the_flag_that_mends_it():
    for changes, flag in (
        ({"truncated": 12}, "--max-new-tokens"),
        ({"well_formatted": 0}, "--format none"),
        ({"statuses": {"unparsed": 12}}, "--format none"),
        ({"statuses": {"error": 12}}, "gold answers"),
        ({"statuses": {"error": 5, "timeout": 7}}, "timeout-seconds"),
    ):
        assert flag in sentence_of(**changes)
        assert "\n" not in sentence_of(**changes)
    assert "--format" not in sentence_of(format="none", statuses={"unparsed": 12})  # it is the one that was used


def test_statuses_stand_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert listed == {value for name, value in vars(outcomes).items() if name.isupper() and isinstance(value, int)}
