"""The table of rules: its page, its words, and that settings in it exist."""

import runpy
from pathlib import Path

import pytest

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.records.dotted import leaves
from gar.rules import RULES, Condition, Rule, faults, raise_all
from tests.support.errors import raises

ROOT = Path(__file__).parents[1]


def test_the_page_is_the_table():
    """If it is not: python docs/site/rules.py > docs/rules.md"""
    made = runpy.run_path(str(ROOT / "docs" / "site" / "rules.py"))["page"]()
    assert made == (ROOT / "docs" / "rules.md").read_text()


def test_settings_of_rules_exist():
    known = {name for name, _ in leaves(RunConfig().model_dump())}
    sections = {name.partition(".")[0] for name in known} - {"method", "data", "model"}
    named = {name for rule in RULES if rule.where != "verl" for name in (*rule.names.split(), *rule.when)}
    assert {name for name in named if "." in name and name.partition(".")[0] in sections} <= known


def test_check_raises_every_fault_in_one_error():
    rules = [
        Rule("a.b", (1, 2), "of {c}", {"c": ("x", "y")}),
        Rule("a.d a.e", Condition("fewer than {c}", lambda value, _: not value)),
        Rule("a.f", "words", where="mine"),
        Rule("a.g"),
        Rule("a.h", (1,), level="unread"),
    ]
    facts = {"a.b": 3, "a.d": 4, "c": "x", "a.f": "x", "words": ("less", None), "chosen": ["a.g"], "a.g": 7}
    with pytest.raises(ConfigError) as caught:
        raise_all(faults("mine", facts, more=rules))
    assert str(caught.value).splitlines() == [
        "",
        "- a.b is 3, expected 1 or 2: of x.",
        "- a.d is 4, expected fewer than x.",
        "- a.f is x, expected less.",
        "- a.g is 7, expected no value.",
    ]
    raise_all(faults("other", facts | {"a.b": 1, "a.d": 0, "chosen": []}, more=rules))
    with raises(ConfigError, "a.b"):
        raise_all(faults("other", {"a.b": 3, "c": "y"}, more=rules))
