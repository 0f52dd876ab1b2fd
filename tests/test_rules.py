"""The table of rules: its page, its words, and that settings in it exist."""

import runpy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from trl import GRPOConfig

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.integrations.slime.settings import SLIME
from gar.integrations.trl.arguments import TRL, trl_flags
from gar.integrations.verl.settings import VERL
from gar.methods import Engine
from gar.methods.rules import Flags
from gar.records.dotted import leaves
from gar.rules import Condition, Facts, Rule, When, bounds, faults, raise_all, setting
from gar.settings import EvaluateSettings
from gar.step import plan_shaping
from gar.train.checks import train_facts
from gar.train.rules import RULES as TRAIN_RULES
from tests.support.errors import raises
from tests.support.rules import named_in

ROOT = Path(__file__).parents[1]


def test_the_page_is_the_table():
    """If it is not: python docs/site/rules.py > docs/rules.md"""
    made = runpy.run_path(str(ROOT / "docs" / "site" / "rules.py"))["page"]()
    assert made == (ROOT / "docs" / "rules.md").read_text()


def test_settings_of_rules_exist():
    known = {name for name, _ in leaves(RunConfig().model_dump())}
    sections = {name.partition(".")[0] for name in known} - {"method", "data", "model"}
    tables = runpy.run_path(str(ROOT / "docs" / "site" / "rules.py"))["TABLES"]
    ours = [rules for title, rules in tables.items() if title != "verl"]  # which has sections of equal names
    named = {name for rules in ours for rule in rules for name in (*rule.names.split(), *named_in(rule))}
    assert {name for name in named if "." in name and name.partition(".")[0] in sections} <= known


def broken(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The same rules, with no value allowed."""
    return tuple(
        replace(rule, allowed=Condition(rule.allowed.words if isinstance(rule.allowed, Condition) else "", never))
        for rule in rules
    )


def never(facts: Facts, name: str) -> bool:
    return False


@pytest.mark.parametrize("method", ["gar-grpo", "maspo", "reinforce-plus-plus"])
@pytest.mark.parametrize("engine", [TRL, SLIME, VERL], ids=lambda engine: engine.name)
def test_rules_find_all_that_their_conditions_and_texts_name(engine: Engine, method: str, tmp_path: Path):
    flags = trl_flags(GRPOConfig(str(tmp_path), use_cpu=True, bf16=False)) if engine is TRL else Flags()
    with pytest.raises(ConfigError) as caught:
        plan_shaping(replace(engine, rules=broken(engine.rules)), method, flags=flags)
    assert "{" not in str(caught.value)


def test_rules_of_gar_train_find_all_that_their_conditions_and_texts_name():
    facts = train_facts(RunConfig(evaluate=EvaluateSettings(sources=("test",))))
    found = faults(broken(TRAIN_RULES), replace(facts, loses_updates=True, missing=frozenset({"peft"})))
    assert {"trl.seed", "adapter.rank", "model.dtype", "evaluate.pass_at_k"} <= {name for name, _ in found}
    assert not [text for _, text in found if "{" in text]


@dataclass(frozen=True, kw_only=True)
class Own(Facts):
    c: str
    most: tuple = ("less", None)


def test_check_raises_every_fault_in_one_error():
    rules = [
        Rule("a.b", (1, 2), "of {c}", (When[Own]("c is x or y", lambda facts: facts.c in ("x", "y")),)),
        Rule("a.d a.e", Condition[Own]("fewer than {c}", lambda facts, name: not facts.settings.get(name))),
        Rule("a.f", Condition[Own]("{most}", lambda facts, name: facts.settings[name] in facts.most)),
        Rule("a.g"),
        Rule("a.b", bounds("> 1 and <= 3"), "", (setting("a.g", 7),)),
    ]
    settings = {"a.b": 3, "a.d": 4, "a.f": "x", "a.g": 7}
    with pytest.raises(ConfigError) as caught:
        raise_all(faults(rules, Own(settings=settings, chosen=["a.g"], c="x")))
    assert str(caught.value).splitlines() == [
        "",
        "- a.b is 3, expected 1 or 2: of x.",
        "- a.d is 4, expected fewer than x.",
        "- a.f is x, expected less.",
        "- a.g is 7, expected no value.",
    ]
    raise_all(faults(rules, Own(settings={"a.b": 1, "a.d": 0, "a.f": "less"}, c="x")))
    with raises(ConfigError, "a.b"):
        raise_all(faults(rules[:1], Own(settings=settings, c="y")))


def test_a_misspelled_fact_is_an_error():
    for rule in (
        Rule("a.b", (1,), "", (When[Own]("c is x", lambda facts: facts.sea == "x"),)),  # pyright: ignore
        Rule("a.b", (1,), "of {sea}"),
    ):
        with pytest.raises(AttributeError):
            faults([rule], Own(settings={"a.b": 3}, c="x"))
