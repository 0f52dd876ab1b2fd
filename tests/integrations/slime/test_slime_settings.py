"""gar.yaml and slime's own flags: what is read, and what is rejected with which words."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gar.errors import ConfigError
from gar.integrations.slime.settings import SLIME, capture_of, read_settings, read_shaping
from gar.methods import METHODS
from gar.rules import SLIME_HOOKS
from tests.engines.rollouts import make_arguments, make_capturing

SCRIPT = Path(__file__).parents[3] / "scripts" / "slime_qwen3_4b.sh"


def test_importing_the_plugin_imports_neither_engines_nor_anything_heavy():
    code = """
import sys
import gar.integrations.slime
heavy = {"slime", "megatron", "ray", "transformers", "trl", "datasets", "pyarrow", "scipy", "matplotlib"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_read_settings_takes_the_section_over_its_variant():
    config = read_settings(make_arguments(gar={"signal": {"max_tokens": 12}, "advantage": {"eps": "1e-4"}}))
    assert config.signal.max_tokens == 12
    assert config.advantage.eps == 1e-4  # slime reads YAML 1.1, where 1e-4 is text
    assert config.advantage.ddof == 0  # variant paper


def test_read_settings_applies_the_method_s_own_signal():
    assert read_shaping(make_arguments(gar={"method": "hidden-cosine"})).signal.kind == "hidden"


@pytest.mark.parametrize(
    ("gar", "text"),
    [
        (
            None,
            r"gar.yaml: expected a section 'gar' with the settings of GAR .*, got none. Is --custom-config-path set",
        ),
        ([1], r"expected a section 'gar' .* got \[1\]"),
        (
            {"reward": {"bonus_wait": 1}},
            r"gar.yaml: gar: unknown key 'reward.bonus_wait'. Did you mean 'bonus_weight'\?",
        ),
        (
            {"reward": {"bonus_weight": -1}},
            r"gar.yaml: gar: reward.bonus_weight must be greater than or equal to 0, got -1",
        ),
        ({"trl": {"beta": 0.1}}, r"'gar.trl' has no effect under slime, whose own flags decide it. Known here: method"),
        ({"method": "gar-grp"}, r"gar: method: unknown value 'gar-grp'.* Did you mean 'gar-grpo'"),
    ],
)
def test_read_settings_names_what_is_wrong(gar, text):
    with pytest.raises(ConfigError, match=text):
        read_settings(make_arguments(gar=gar))


def test_every_supported_method_needs_no_more_than_an_anchor():
    assert sorted(SLIME.methods()) == [
        "alignment-only", "gar-grpo", "gar-reinforce-plus-plus", "grpo", "hidden-cosine", "reinforce-plus-plus",
        "reinforce-plus-plus-baseline",
    ]  # fmt: skip
    for name in SLIME.methods():
        method = METHODS[name]
        assert method.alignment in (None, "anchor")
        assert not any((method.compares_responses, method.trainer, method.gate, method.trl))


def test_read_shaping_passes_each_estimator_with_its_flag():
    for method, flag in (
        ("gar-grpo", "grpo"),
        ("gar-grpo", "gspo"),
        ("gar-reinforce-plus-plus", "reinforce_plus_plus"),
        ("reinforce-plus-plus-baseline", "reinforce_plus_plus_baseline"),
    ):
        args = make_arguments(gar={"method": method}, advantage_estimator=flag)
        read_shaping(args)
    flag = "reinforce_plus_plus"
    chosen = make_arguments(gar={"advantage": {"estimator": "reinforce-plus-plus"}}, advantage_estimator=flag)
    assert read_shaping(chosen).estimator == "reinforce-plus-plus"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"gar": {"method": "g2rl"}},
            "method is g2rl, expected .*: the method compares the vectors of",
        ),
        ({"advantage_estimator": "ppo"}, "is ppo, expected grpo, gspo or cispo: .* and cannot train ppo's critic"),
        (
            {"advantage_estimator": "reinforce_plus_plus"},
            "is reinforce_plus_plus, expected grpo, gspo or cispo: GAR runs group",
        ),
        (
            {
                "gar": {"method": "reinforce-plus-plus", "advantage": {"ddof": 1}},
                "advantage_estimator": "reinforce_plus_plus",
            },
            "advantage.ddof is 1, expected left out: slime whitens over the batch by itself",
        ),
        ({"compute_advantages_and_returns": False}, "without advantages no reward has an effect"),
        ({"custom_reward_post_process_path": "my.module"}, "is my.module, expected left out: GAR sets the rewards"),
        (
            {"dynamic_sampling_filter_path": "slime.rollout.filter_hub.x.check_reward_nonzero_std"},
            "drops groups whose outcomes are all equal",
        ),
        ({"qkv_format": "bshd"}, "--qkv-format is bshd, expected thd"),
        (
            {"partial_rollout": True, "mask_offpolicy_in_partial_rollout": True},
            "--mask-offpolicy-in-partial-rollout is True, expected False: GAR reads masked text",
        ),
        *(
            ({name: None}, f"--{name.replace('_', '-')} is None, expected {hook}: GAR needs all of its hooks")
            for name, hook in SLIME_HOOKS.items()
        ),
    ],
)
def test_read_shaping_refuses(changes, text):
    args = make_arguments(**changes)
    with pytest.raises(ConfigError, match=text):
        read_shaping(args)


def test_the_launch_script_names_the_hooks_and_valid_settings():
    script = SCRIPT.read_text()
    for name, hook in SLIME_HOOKS.items():
        assert f"--{name.replace('_', '-')} {hook}\n" in script
    text = script.partition("<<'GAR_YAML'\n")[2].partition("GAR_YAML\n")[0]
    args = make_arguments(**yaml.safe_load(text))
    read_shaping(args)
    assert read_settings(args).reward.bonus_weight == 0.5
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0


def test_capture_is_own_unless_set():
    assert capture_of(make_arguments()) == "own"
    args = make_capturing()
    assert capture_of(args) == "logprob"
    read_shaping(args)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"use_rollout_logprobs": True},
            "--use-rollout-logprobs is True, expected False: slime makes no log-probability pass then. Set gar.ca",
        ),
        ({"keep_old_actor": True}, "--keep-old-actor is True, expected False: the vectors would be an older policy's"),
        (
            {"global_batch_size": 28},
            "--global-batch-size is 28, expected fewer than the responses of a rollout: with one update",
        ),
        (
            {"custom_megatron_before_log_prob_hook_path": None},
            "--custom-megatron-before-log-prob-hook-path is None, expected gar.integrations.slime.before_log_prob",
        ),
    ],
)
def test_capture_logprob_is_refused_where_slime_makes_no_such_pass(changes, text):
    args = make_capturing()
    vars(args).update(changes)
    with pytest.raises(ConfigError, match=text):
        read_shaping(args)


@pytest.mark.parametrize(
    "reason",
    [
        {"use_rollout_logprobs": True, "get_mismatch_metrics": True},
        {"global_batch_size": 28, "kl_coef": 0.1},
        {"global_batch_size": 28, "advantage_estimator": "gspo"},
        {"global_batch_size": 28, "get_mismatch_metrics": True},
    ],
)
def test_capture_logprob_is_let_through_where_slime_makes_the_pass(reason):
    args = make_capturing(**reason)
    read_shaping(args)


def test_capture_names_its_two_values():
    with pytest.raises(ConfigError, match=r"gar.capture is log_prob, expected own or logprob"):
        read_shaping(make_arguments(gar={"capture": "log_prob"}))


def test_settings_that_nothing_reads_are_named_once_at_the_start():
    """By `on_megatron_init` on the first rank; hooks that run at every step are quiet."""
    args = make_arguments(gar={"method": "grpo", "signal": {"precision": "float32"}, "reward": {"bonus_weight": 0.2}})
    with pytest.warns(UserWarning, match="Not read by grpo under slime: signal.precision, reward.bonus_weight"):
        read_shaping(args, quiet=False)
    read_shaping(args)  # any warning is an error here
