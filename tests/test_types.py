"""The records: frozen, keyword-only, and as their own examples show them."""

import dataclasses
import re

import pytest

from gar import types
from gar.settings import TagSettings
from gar.types import Anchor, Problem, Status, Tags, Verdict


@pytest.mark.parametrize("record", [Anchor, Problem, Verdict, Tags])
def test_a_record_is_as_its_example_frozen_and_takes_keywords_alone(record):
    example = re.search(rf"Example: ({record.__name__}\(.*\))", record.__doc__, re.DOTALL)
    assert example is not None
    value = eval(example[1], vars(types))
    assert hash(value) == hash(dataclasses.replace(value))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(record)[0].name, "y")
    with pytest.raises(TypeError, match="positional"):
        record("x")


def test_defaults_of_a_problem_and_of_tags_and_the_words_of_a_status():
    problem = Problem(id="1", prompt=[{"role": "user", "content": "3 + 4 ="}], answer="7")
    assert (problem.anchors, problem.source) == ((), "")
    assert [str(status) for status in Status] == ["ok", "wrong", "unparsed", "timeout", "error"]
    assert TagSettings().as_tags() == Tags()
