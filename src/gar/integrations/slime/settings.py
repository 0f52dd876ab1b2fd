"""The settings in gar.yaml, checked before anything runs, and the jobs that GAR cannot run under slime."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from gar.config import RunConfig, make_config
from gar.errors import ConfigError
from gar.methods import Engine
from gar.methods.base import Estimator
from gar.settings import GROUP_DDOF
from gar.step import Shaping, plan_shaping

HOOKS = {
    "custom_convert_samples_to_train_data_path": "gar.integrations.slime.convert_samples",
    "custom_megatron_init_path": "gar.integrations.slime.on_megatron_init",
    "rollout_data_postprocess_path": "gar.integrations.slime.postprocess",
}
"""slime's arguments and their required values: with some of the hooks missing, training would not be GAR."""

LOG_PROB_HOOK = {"custom_megatron_before_log_prob_hook_path": "gar.integrations.slime.before_log_prob"}
"""One more with `capture: logprob`."""

Capture = Literal["own", "logprob"]
"""Source of the responses' hidden states: a pass of our own, or slime's log-probability pass."""

SECTIONS = ("method", "variant", "plugins", "verify", "signal", "reward", "advantage", "watchdog")
"""Settings of a run that apply here; slime's own flags decide the rest."""

ESTIMATORS: dict[Estimator, tuple[str, ...]] = {
    "group": ("grpo", "gspo", "cispo"),
    "reinforce-plus-plus": ("reinforce_plus_plus",),
    "reinforce-plus-plus-baseline": ("reinforce_plus_plus_baseline",),
}
"""Our names of estimators, and the equivalent values of slime's --advantage-estimator."""

SLIME = Engine(
    name="slime",
    can=frozenset({"anchor"}),
    estimators=ESTIMATORS,
    ddof=1,
    eps=1e-6,
    ignores=("signal.precision", "signal.memory_bytes"),
)
"""slime sets its loss by its own flags and brings only vectors of responses and anchors. ddof and eps are slime's."""


def read_settings(args: Any) -> RunConfig:
    """The settings in the section `gar` of slime's `--custom-config-path`, without `capture`.

    Args:
        args: slime's arguments.

    Returns:
        A run's configuration in which only `SECTIONS` count.

    Raises:
        ConfigError: The section is missing, or a key or a value in it is wrong.
    """
    values = getattr(args, "gar", None)
    path = getattr(args, "custom_config_path", None) or "--custom-config-path"
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{path}: expected a section 'gar' with the settings of GAR (it may be empty: 'gar: {{}}'), got "
            f"{'none' if values is None else repr(values)}. Is --custom-config-path set?"
        )
    for key in values:
        if key in RunConfig.model_fields and key not in SECTIONS:
            raise ConfigError(
                f"{path}: 'gar.{key}' has no effect under slime, whose own flags decide it. Known here: "
                f"{', '.join(SECTIONS)}, capture."
            )
    values = {key: value for key, value in values.items() if key != "capture"}
    return make_config(values, source=f"{path}: gar")


def read_shaping(args: Any, *, quiet: bool = True) -> Shaping:
    """The method with the settings in force.

    Args:
        args: slime's arguments.
        quiet: Do not warn of settings that nothing reads.

    Raises:
        ConfigError: As `read_settings`; or the method does not run here, or a setting is switched off by another.
    """
    config = read_settings(args)
    sections = {name: getattr(config, name) for name in SECTIONS if name not in ("method", "variant", "plugins")}
    divides = bool(args.rewards_normalization and args.grpo_std_normalization)
    return plan_shaping(SLIME, config.method, sections, divides=divides, quiet=quiet)


def capture_of(args: Any) -> Capture:
    """The key `capture` of the section `gar`, which only slime has.

    Raises:
        ConfigError: It is none of `Capture`.
    """
    value = args.gar.get("capture", "own")
    if value not in get_args(Capture):
        raise ConfigError(f"{args.custom_config_path}: gar.capture is {value!r}, expected own or logprob")
    return value


def check_supported(args: Any, *, quiet: bool = True) -> None:
    """Reject a job whose rewards or advantages would not be what the method defines.

    Args:
        args: slime's arguments.
        quiet: As in `read_shaping`.

    Raises:
        ConfigError: Names the setting or flag, its value, and why.
    """
    shaping = read_shaping(args, quiet=quiet)
    capture = capture_of(args)
    for name, hook in (HOOKS | LOG_PROB_HOOK if capture == "logprob" else HOOKS).items():
        if getattr(args, name, None) != hook:
            raise ConfigError(
                f"{_flag(name)} must be {hook}, got {getattr(args, name, None)}: GAR needs all of its hooks"
            )
    _check_estimator(args, shaping)
    if not args.compute_advantages_and_returns:
        raise ConfigError(
            "--disable-compute-advantages-and-returns trains without advantages, so that no reward has an effect"
        )
    if args.custom_reward_post_process_path is not None:
        raise ConfigError(
            f"--custom-reward-post-process-path is {args.custom_reward_post_process_path}, but GAR sets the rewards: "
            "one would overwrite the other"
        )
    if "check_reward_nonzero_std" in (getattr(args, "dynamic_sampling_filter_path", None) or ""):
        raise ConfigError(
            "--dynamic-sampling-filter-path drops groups whose outcome rewards are all equal before GAR sees them, and "
            "those all-correct groups are the ones that GAR gives a signal"
        )
    if capture == "logprob":
        _check_log_prob_pass(args)
    if getattr(args, "qkv_format", "thd") != "thd":
        raise ConfigError(f"--qkv-format is {args.qkv_format}, expected thd: GAR packs sequences")
    if getattr(args, "partial_rollout", False) and getattr(args, "mask_offpolicy_in_partial_rollout", False):
        raise ConfigError(
            "--mask-offpolicy-in-partial-rollout masks text of the policy, and GAR reads masked text as that of a "
            "tool: the start of a resumed response would not be graded. Leave the flag out"
        )


def _check_log_prob_pass(args: Any) -> None:
    """Reject flags under which slime does not make the pass that `capture: logprob` needs."""
    advice = "Set gar.capture to own."
    if args.use_rollout_logprobs and not args.get_mismatch_metrics:
        raise ConfigError(
            "gar.capture is 'logprob', but with --use-rollout-logprobs slime makes no log-probability pass. " + advice
        )
    if args.keep_old_actor:
        raise ConfigError(
            "gar.capture is 'logprob', but with --keep-old-actor slime makes that pass with the weights of an older "
            "policy, whose vectors it would give. " + advice
        )
    responses = args.rollout_batch_size * args.n_samples_per_prompt
    needs_pass = (
        args.loss_type != "policy_loss" or args.kl_coef != 0 or args.get_mismatch_metrics or args.use_critic
        or args.use_opd or args.use_routing_replay or args.advantage_estimator == "gspo"
    )  # fmt: skip
    if args.global_batch_size >= responses and not needs_pass:
        raise ConfigError(
            f"gar.capture is 'logprob', but with one update per rollout (--global-batch-size {args.global_batch_size} "
            f"for {responses} responses) slime makes no log-probability pass. " + advice
        )


def _check_estimator(args: Any, shaping: Shaping) -> None:
    ddof = shaping.advantage.ddof
    if shaping.estimator != "group" and ddof not in (None, GROUP_DDOF):  # the latter is the variant paper's
        raise ConfigError(
            f"gar.advantage.ddof is {ddof}, but slime whitens over the batch by itself, so that nothing would read it. "
            "Leave it out."
        )
    expected = ESTIMATORS[shaping.estimator]
    if args.advantage_estimator in expected:
        return
    if args.advantage_estimator == "ppo":
        raise ConfigError(
            "--advantage-estimator is ppo: its critic is trained on rewards that GAR has not shaped yet. "
            f"Use {expected[0]}."
        )
    raise ConfigError(
        f"--advantage-estimator is {args.advantage_estimator}, but {shaping.method.name} with estimator "
        f"'{shaping.estimator}' goes with {' or '.join(expected)}. Change the flag, gar.method or "
        "gar.advantage.estimator."
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
