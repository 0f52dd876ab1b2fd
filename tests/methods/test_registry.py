"""Methods of one's own: what a declaration may hold. That one trains is in tests/integrations/test_trl_methods.py."""

from typing import Any

from gar.errors import ConfigError
from gar.methods import METHODS, Method, find_method, outcome_rewards, register
from tests.support.errors import raises


def test_a_method_that_no_driver_could_serve_is_an_error():
    before = dict(METHODS)
    declared: tuple[tuple[dict[str, Any], str], ...] = (
        ({"name": "grpo"}, "method-taken"),
        ({"signal": {"knd": "hidden"}}, "bad-method"),
        ({"reward": ("correct_reward", "bonus_wait")}, "bad-method"),
        ({"alignment": "expert"}, "bad-method"),
        ({"estimator": "ppo"}, "bad-method"),
        ({"alignment": "text", "compares_responses": True}, "bad-method"),
    )
    for given, code in declared:
        with raises(ConfigError, code):
            register(Method(**{"name": "mine", "summary": "", "shape": outcome_rewards, **given}))
    assert before == METHODS
    with raises(ConfigError, "method"):
        find_method("mine")
    with raises(ConfigError, "bad-method"):
        find_method(Method(name="mine", summary="", shape=outcome_rewards, alignment="expert"))  # type: ignore[arg-type]
