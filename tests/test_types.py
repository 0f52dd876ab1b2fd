"""The records: frozen, keyword-only, and as their own examples show them."""

import dataclasses
import re

import pytest

from gar import types
from gar.settings import TagSettings
from gar.types import Anchor, Problem, Status, Tags, Verdict

RECORDS = [Anchor, Problem, Verdict, Tags]


@pytest.mark.parametrize("record", RECORDS)
def test_example_in_the_docstring_is_valid(record):
    example = re.search(rf"Example: ({record.__name__}\(.*\))", record.__doc__, re.DOTALL)
    value = eval(example[1], vars(types))
    assert dataclasses.is_dataclass(value)
    assert hash(value) == hash(dataclasses.replace(value))


@pytest.mark.parametrize("record", RECORDS)
def test_record_is_frozen_and_takes_keywords_alone(record):
    fields = dataclasses.fields(record)
    value = record(**{field.name: "x" for field in fields})
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, fields[0].name, "y")
    with pytest.raises(TypeError, match="positional"):
        record("x")


def test_problem_may_have_chat_messages_and_no_anchor():
    problem = Problem(id="1", prompt=[{"role": "user", "content": "3 + 4 ="}], answer="7")
    assert problem.anchors == ()
    assert problem.source == ""


def test_status_reads_and_prints_as_its_value():
    assert [str(status) for status in Status] == ["ok", "wrong", "unparsed", "timeout", "error"]
    assert Status("timeout") is Status.TIMEOUT


def test_tags_default_to_those_of_the_settings():
    assert TagSettings().as_tags() == Tags()
