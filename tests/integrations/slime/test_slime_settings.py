"""gar.yaml and slime's own flags: what is read, and what is rejected."""

import sys

import pytest

from gar.errors import ConfigError
from gar.integrations.slime.settings import SLIME_HOOKS, capture_of, read_settings, read_shaping, slime_flag
from tests.engines.rollouts import make_arguments, make_capturing
from tests.support.errors import raises
from tests.support.processes import completed


def test_importing_the_plugins_imports_neither_engines_nor_anything_heavy():
    """In a process in which verl cannot be imported, even if it is installed."""
    code = """
import sys
sys.modules["verl"] = None
import gar.integrations.slime
heavy = {"slime", "megatron", "ray", "transformers", "trl", "datasets", "pyarrow", "scipy", "matplotlib"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
import gar.integrations.data, gar.integrations.verl.settings, gar.integrations.verl.exchange
assert not [name for name in sys.modules if name.startswith(("ray", "tensordict", "transfer_queue"))]
"""
    ran = completed([sys.executable, "-c", code], check=True)
    assert ran.stdout == "[]\n"


def test_read_settings_takes_the_section_over_its_variant():
    config = read_settings(make_arguments(gar={"signal": {"max_tokens": 12}, "advantage": {"eps": "1e-4"}}))
    assert config.signal.max_tokens == 12
    assert config.advantage.eps == 1e-4  # slime reads YAML 1.1, where 1e-4 is text
    assert config.advantage.ddof == 0  # variant paper
    assert read_shaping(make_arguments(gar={"method": "hidden-cosine"})).signal.kind == "hidden"


def test_read_settings_names_what_is_wrong():
    for gar, code in ((None, "no-section"), ({"trl": {"beta": 0.1}}, "no-effect"), ({"x": 1}, "unknown-key")):
        with raises(ConfigError, code):
            read_settings(make_arguments(gar=gar))


def test_read_shaping_passes_each_estimator_with_its_flag():
    baseline = "reinforce-plus-plus-baseline"
    for method, flag in (("gar-grpo", "gspo"), (baseline, "reinforce_plus_plus_baseline")):
        read_shaping(make_arguments(gar={"method": method}, advantage_estimator=flag))
    flag = "reinforce_plus_plus"
    chosen = make_arguments(gar={"advantage": {"estimator": "reinforce-plus-plus"}}, advantage_estimator=flag)
    assert read_shaping(chosen).estimator == "reinforce-plus-plus"


def test_read_shaping_names_the_flag_that_is_wrong():
    whitening = {"advantage_estimator": "reinforce_plus_plus"}
    own_ddof = {"gar": {"method": "reinforce-plus-plus", "advantage": {"ddof": 1}}} | whitening
    for changes, name in (
        ({"gar": {"method": "g2rl"}}, "method"),
        ({"gar": {"capture": "log_prob"}}, "gar.capture"),
        (whitening, "--advantage-estimator"),
        (own_ddof, "advantage.ddof"),
        ({"dynamic_sampling_filter_path": "check_reward_nonzero_std"}, "--dynamic-sampling-filter-path"),
        ({"partial_rollout": True, "mask_offpolicy_in_partial_rollout": True}, "--mask-offpolicy-in-partial-rollout"),
        *(({hook: None}, slime_flag(hook)) for hook in SLIME_HOOKS),
    ):
        with raises(ConfigError, name):
            read_shaping(make_arguments(**changes))


def test_capture_logprob_needs_slimes_pass():
    assert (capture_of(make_arguments()), capture_of(make_capturing())) == ("own", "logprob")
    for name, value in (
        ("keep_old_actor", True),
        ("custom_megatron_before_log_prob_hook_path", None),
    ):
        args = make_capturing()
        setattr(args, name, value)
        with raises(ConfigError, slime_flag(name)):
            read_shaping(args)
    read_shaping(make_capturing())


def test_settings_that_nothing_reads_are_named_unless_quiet():
    args = make_arguments(gar={"method": "grpo", "signal": {"precision": "float32"}, "reward": {"bonus_weight": 0.2}})
    with pytest.warns(UserWarning, match="Not read by grpo under slime: signal.precision, reward.bonus_weight"):
        read_shaping(args, quiet=False)
    read_shaping(args)  # any warning is an error here
