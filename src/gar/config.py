"""All settings of a run in one frozen model: defaults, then a variant, then a YAML file, then flags."""

import io
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError, create_model
from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError

from gar.errors import ConfigError, did_you_mean, first_line
from gar.plugins import load_plugins
from gar.settings import (
    EMBEDDED_TASKS,
    GROUP_DDOF,
    GROUP_EPS,
    REGISTERED,
    AdapterSettings,
    AdvantageSettings,
    DataSettings,
    EvaluateSettings,
    MethodName,
    ModelSettings,
    PreflightSettings,
    RecordSettings,
    RewardSettings,
    Settings,
    SignalSettings,
    VerifySettings,
    WatchdogSettings,
    errors_in_words,
    section_name,
)

VariantName = Literal["paper", "paper-thresholds"]


def _absolute(plugins: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(Path(name).resolve()) if name.endswith(".py") else name for name in plugins)


class RunConfig(Settings):
    """The configuration of a run. `trl` holds any field of `trl.GRPOConfig`, under its own name."""

    method: MethodName = "gar-grpo"
    """Which reward and optimizer. docs/equations.md has the formulas."""
    variant: VariantName = "paper"
    """Named defaults that the settings below override. docs/how-it-works.md lists what each changes."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seeds a new adapter, the order of problems, sampling and evaluation."""
    plugins: Annotated[tuple[str, ...], AfterValidator(_absolute)] = ()
    """Modules ("package.module") or Python files that register methods. --plugin adds one."""
    model: ModelSettings = ModelSettings()
    adapter: AdapterSettings = AdapterSettings()
    data: DataSettings = DataSettings()
    verify: VerifySettings = VerifySettings()
    signal: SignalSettings = SignalSettings()
    reward: RewardSettings = RewardSettings()
    advantage: AdvantageSettings = AdvantageSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    preflight: PreflightSettings = PreflightSettings()
    watchdog: WatchdogSettings = WatchdogSettings()
    records: RecordSettings = RecordSettings()
    trl: dict[str, Any] = Field(default_factory=dict)
    """Any field of `trl.GRPOConfig`, by its own name."""


def config_type() -> type[RunConfig]:
    """`RunConfig` with the registered methods, and a section for each method that has settings.

    Raises:
        ConfigError: A section's name is taken.
    """
    methods = tuple((name, method.settings) for name, method in REGISTERED.items())
    for name, kind in methods:
        if kind is not None and section_name(name) in RunConfig.model_fields:
            raise ConfigError(f"method '{name}' cannot have settings: the section '{section_name(name)}' is taken.")
    return _with_methods(methods) if methods else RunConfig


@cache
def _with_methods(methods: tuple[tuple[str, type[Settings] | None], ...]) -> type[RunConfig]:
    names = Literal[(*get_args(MethodName), *(name for name, _ in methods))]  # pyright: ignore[reportInvalidTypeForm]
    fields: dict[str, Any] = {section_name(name): (kind, kind()) for name, kind in methods if kind is not None}
    fields["method"] = (names, "gar-grpo")
    return create_model("RunConfig", __base__=RunConfig, __doc__=RunConfig.__doc__, **fields)


_PAPER: dict[str, Any] = {"advantage": {"ddof": GROUP_DDOF, "eps": GROUP_EPS}}

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": _PAPER,
    "paper-thresholds": {**_PAPER, "signal": {"activation_threshold": 0.05, "expert_keep_fraction": 0.7}},
}


class _Constructor(SafeConstructor):
    """A date stays a string, as in `records.name: 2026-11-21`."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _yaml() -> YAML:
    """YAML 1.2: `1e-3` is a number, `no` a string, and a key that appears twice an error."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    return yaml


def parse_yaml(text: str, name: str = "YAML") -> Any:
    """The value of a YAML text, or a `ConfigError`."""
    try:
        return _yaml().load(text)
    except (YAMLError, ValueError, KeyError, RecursionError) as error:  # YAMLError and what the constructors raise
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = first_line(getattr(error, "problem", None) or error)
        raise ConfigError(f"{name}: not valid YAML: {problem}{place}", code="not-yaml") from error


def preset_names() -> list[str]:
    """Names that `--preset` takes."""
    folder = resources.files("gar") / "configs"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def read_preset(name: str) -> Any:
    """The values of a packaged preset, for `make_config`, or a `ConfigError` about an unknown name."""
    if name not in preset_names():
        hint = did_you_mean(name, preset_names())
        raise ConfigError(f"unknown preset '{name}', expected one of {', '.join(preset_names())}.{hint}")
    return parse_yaml((resources.files("gar") / "configs" / f"{name}.yaml").read_text(encoding="utf-8"), name)


def read_config(path: str | Path) -> Any:
    """The values of a YAML file, for `make_config`.

    Raises:
        ConfigError: The file is missing or not YAML.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        hint = f". Did you mean --preset {path}?" if str(path) in preset_names() else ""
        raise ConfigError(f"{path}: cannot read the configuration: {why}{hint}", code="unreadable") from error
    return parse_yaml(text, str(path))


def make_config(values: Any, *, source: str = "configuration") -> RunConfig:
    """A configuration from nested dicts, over the defaults of its variant. Its plugins are imported first.

    Raises:
        ConfigError: A plugin cannot be imported, `values` is not a mapping, or a key or a value in it is wrong. Names
            the source, the key, and the nearest known key.
    """
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        raise ConfigError(f"{source}: expected a mapping of settings, got {type(values).__name__}")
    plugins = values.get("plugins", ())
    load_plugins(plugins if isinstance(plugins, (list, tuple)) and all(isinstance(p, str) for p in plugins) else ())
    variant = VARIANTS.get(str(values.get("variant", "paper")), {})
    try:
        return config_type().model_validate(merge(variant, values))
    except ValidationError as error:
        raise errors_in_words(error, config_type(), source=source) from error


def with_template(config: RunConfig) -> RunConfig:
    """The configuration with `data.template` auto replaced by a template."""
    data = config.data
    if data.template != "auto":
        return config
    embedded = data.source in EMBEDDED_TASKS or config.model.path == "embedded"
    template = "plain" if embedded or config.verify.format == "none" else config.verify.format
    return config.model_copy(update={"data": data.model_copy(update={"template": template})})


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merged nested dicts. The second takes precedence."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def dump_yaml(values: Mapping[str, Any]) -> str:
    """Plain values as YAML 1.2."""
    text = io.StringIO()
    _yaml().dump(values, text)
    return text.getvalue()


def foreign_problems(config: RunConfig) -> str:
    """A sentence if the embedded model, the default, is to solve problems that it never saw. "" otherwise."""
    foreign = config.model.path == "embedded" and config.data.source not in EMBEDDED_TASKS
    return "the embedded model knows its own arithmetic alone. Name yours: --model.path" if foreign else ""
