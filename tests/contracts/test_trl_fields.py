"""The tables of `gar.integrations.trl.fields` fit the installed TRL and transformers."""

import dataclasses
import inspect

from trl import GRPOConfig
from trl.trainer import grpo_trainer

from gar.integrations.trl.fields import check_fields, default_of, field_types
from gar.rules import RULES

FIELDS = {field.name: field for field in dataclasses.fields(GRPOConfig) if field.init}
NAMED = {name for rule in RULES for name in rule.names.split() if name.startswith("trl.")}
OWNED = {name for rule in RULES if rule.why.startswith("use ") for name in rule.names.split()}


def test_fields_are_those_of_the_class():
    assert field_types().keys() == FIELDS.keys()
    assert NAMED - {"trl.reward_funcs", "trl.dynamic_sampling"} <= {f"trl.{name}" for name in FIELDS}


def test_defaults_are_those_of_the_class_and_pass():
    for name in ("learning_rate", "num_generations", "max_completion_length", "temperature", "max_steps"):
        assert default_of(name) == str(FIELDS[name].default)
    defaults = {name: field.default for name, field in FIELDS.items() if f"trl.{name}" not in OWNED}
    check_fields({name: value for name, value in defaults.items() if isinstance(value, (int, float, str))})


def test_words_are_those_that_are_compared_with():
    source = inspect.getsource(grpo_trainer) + inspect.getsource(inspect.getmodule(GRPOConfig))
    allowed = [rule.allowed for rule in RULES if rule.where == "gar train" and isinstance(rule.allowed, tuple)]
    words = [word for words in allowed for word in words if isinstance(word, str)]
    assert not [word for word in words if f'"{word}"' not in source]
