"""The table of rules: its page, its words, and that settings in it exist."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from trl import GRPOConfig

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.integrations.slime.settings import SLIME
from gar.integrations.trl.arguments import TRL, trl_flags
from gar.integrations.trl.fields import known_fields
from gar.integrations.verl.settings import VERL
from gar.methods import METHODS
from gar.methods.plan import run_facts
from gar.records.dotted import leaves
from gar.rules import PACKAGES, RULES, Condition, Rule, faults, raise_all
from tests.support.errors import raises

ROOT = Path(__file__).parents[1]


def test_the_page_is_the_table():
    """If it is not: python docs/site/rules.py > docs/rules.md"""
    made = runpy.run_path(str(ROOT / "docs" / "site" / "rules.py"))["page"]()
    assert made == (ROOT / "docs" / "rules.md").read_text()


def test_settings_of_rules_exist():
    known = {name for name, _ in leaves(RunConfig().model_dump())}
    sections = {name.partition(".")[0] for name in known} - {"method", "data", "model"}
    named = {name for rule in (*RULES, *SLIME.rules) for name in (*rule.names.split(), *rule.when)}
    assert {name for name in named if "." in name and name.partition(".")[0] in sections} <= known


def named_by(rule: Rule) -> Iterator[str]:
    """The facts that a rule names: it never fires if nothing gives one of them."""
    yield from (*rule.names.split(), *rule.when)
    if isinstance(rule.allowed, str):
        yield rule.allowed
    words = rule.allowed.words if isinstance(rule.allowed, Condition) else ""
    yield from re.findall(r"\{([^}]+)\}", f"{rule.why} {words}")


def test_every_fact_of_a_rule_is_given_by_something(tmp_path):
    method = METHODS["gar-grpo"]
    given = {
        *run_facts(method, dict(RunConfig())),
        *(name for name, _ in leaves(RunConfig().model_dump())),
        *TRL.facts(method, "group"),
        *trl_flags(GRPOConfig(str(tmp_path), use_cpu=True, bf16=False)),
        *(f"trl.{name}" for name in (*known_fields(), "reward_funcs", "dynamic_sampling")),  # the last of another TRL
        *(f"no {module}" for module, _ in PACKAGES.values()),
        *(
            "advantages are TRL's",
            "evaluates",
            "updates are lost",
            "gar.capture",
        ),  # of `plan_shaping`, the checks and slime
    }
    flags = ("--", "actor_rollout_ref.", "algorithm.", "reward.")  # of slime and verl, which are not installed
    for rule in (*RULES, *SLIME.rules, *VERL.rules):
        of_engine = rule not in RULES
        missing = {name for name in named_by(rule) if not (name in given or (of_engine and name.startswith(flags)))}
        assert not missing, rule


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
