"""Methods of one's own: what a declaration may hold. That one trains is in tests/integrations/test_trl_methods.py."""

from typing import Any

import pytest

from gar.errors import ConfigError
from gar.methods import METHODS, Method, find_method, outcome_rewards, register


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"name": "grpo"}, "a method named 'grpo' is registered already"),
        ({"signal": {"knd": "hidden"}}, "method 'mine': no such signal setting: knd"),
        ({"reward": ("correct_reward", "bonus_wait")}, "method 'mine': no such reward setting: bonus_wait"),
        ({"alignment": "expert"}, "method 'mine': no such alignment: expert"),
        ({"estimator": "ppo"}, "method 'mine': no such estimator: ppo"),
        (
            {"alignment": "text", "compares_responses": True},
            "method 'mine': alignment 'text' takes no vectors of anchors, and compares_responses does not",
        ),
    ],
)
def test_register_refuses_what_no_driver_could_serve(declared: dict[str, Any], text: str):
    before = dict(METHODS)
    with pytest.raises(ConfigError, match=text):
        register(Method(**{"name": "mine", "summary": "", "shape": outcome_rewards, **declared}))
    assert before == METHODS


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match="unknown method 'mine', expected one of grpo, dr-grpo"):
        find_method("mine")
    with pytest.raises(ConfigError, match="method 'mine': no such alignment: expert"):
        find_method(Method(name="mine", summary="", shape=outcome_rewards, alignment="expert"))  # type: ignore[arg-type]
