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
    assert read_shaping(make_arguments(gar={"method": "hidden-cosine"})).signal.kind == "hidden"


def test_read_settings_names_what_is_wrong():
    for gar, text in (
        (None, "gar.yaml: expected a section 'gar'"),
        ([1], r"expected a section 'gar' .* got \[1\]"),
        ({"reward": {"bonus_wait": 1}}, "gar.yaml: gar: unknown key 'reward.bonus_wait'"),
        ({"reward": {"bonus_weight": -1}}, "gar.yaml: gar: reward.bonus_weight must be"),
        ({"trl": {"beta": 0.1}}, "'gar.trl' has no effect under slime"),
        ({"method": "gar-grp"}, "gar: method: unknown value 'gar-grp'"),
    ):
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


def test_read_shaping_refuses():
    whitening = {"advantage_estimator": "reinforce_plus_plus"}
    own_ddof = {"gar": {"method": "reinforce-plus-plus", "advantage": {"ddof": 1}}} | whitening
    for changes, text in (
        ({"gar": {"method": "g2rl"}}, "method is g2rl, expected"),
        ({"advantage_estimator": "ppo"}, "is ppo, expected grpo, gspo or cispo"),
        (whitening, "is reinforce_plus_plus, expected grpo, gspo or cispo"),
        (own_ddof, "advantage.ddof is 1, expected left out"),
        ({"compute_advantages_and_returns": False}, "--disable-compute|--compute-advantages-and-returns"),
        ({"custom_reward_post_process_path": "my.module"}, "--custom-reward-post-process-path is my.module"),
        ({"dynamic_sampling_filter_path": "check_reward_nonzero_std"}, "--dynamic-sampling-filter-path"),
        ({"qkv_format": "bshd"}, "--qkv-format is bshd, expected thd"),
        ({"partial_rollout": True, "mask_offpolicy_in_partial_rollout": True}, "--mask-offpolicy-in-partial-rollout"),
        *(({name: None}, f"--{name.replace('_', '-')} is None, expected {hook}") for name, hook in SLIME_HOOKS.items()),
    ):
        with pytest.raises(ConfigError, match=text):
            read_shaping(make_arguments(**changes))


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
    assert capture_of(make_capturing()) == "logprob"
    with pytest.raises(ConfigError, match=r"gar.capture is log_prob, expected own or logprob"):
        read_shaping(make_arguments(gar={"capture": "log_prob"}))


def test_capture_logprob_is_refused_where_slime_makes_no_such_pass():
    for changes in (
        {"use_rollout_logprobs": True},
        {"keep_old_actor": True},
        {"global_batch_size": 28},
        {"custom_megatron_before_log_prob_hook_path": None},
    ):
        args = make_capturing()
        vars(args).update(changes)
        with pytest.raises(ConfigError, match=f"--{next(iter(changes)).replace('_', '-')} is "):
            read_shaping(args)


def test_capture_logprob_is_let_through_where_slime_makes_the_pass():
    read_shaping(make_capturing())
    read_shaping(make_capturing(use_rollout_logprobs=True, get_mismatch_metrics=True))
    for reason in ({"kl_coef": 0.1}, {"advantage_estimator": "gspo"}, {"get_mismatch_metrics": True}):
        read_shaping(make_capturing(global_batch_size=28, **reason))


def test_settings_that_nothing_reads_are_named_once_at_the_start():
    """By `on_megatron_init` on the first rank; hooks that run at every step are quiet."""
    args = make_arguments(gar={"method": "grpo", "signal": {"precision": "float32"}, "reward": {"bonus_weight": 0.2}})
    with pytest.warns(UserWarning, match="Not read by grpo under slime: signal.precision, reward.bonus_weight"):
        read_shaping(args, quiet=False)
    read_shaping(args)  # any warning is an error here
