"""`gar train --help`: the settings that people change, by group, with examples. `--help-all` has every setting."""

import textwrap
from typing import Any

from gar.cli.arguments import ALIASES
from gar.config import RunConfig, preset_names
from gar.integrations.trl.fields import default_of

_HEAD = """usage: gar train [CONFIG.yaml | --preset NAME] [--SETTING VALUE ...] [--dry-run]
       gar train --resume RUN [--allow-config-change]

Train a policy with gradient-aligned rewards.

examples:
  gar train --preset demo                   offline, minutes on a CPU
  gar train --model.path Qwen/Qwen3-0.6B --data.source problems.jsonl
  gar train --preset demo --method grpo --trl.max_steps 20

options:
  CONFIG.yaml        settings by the names below, YAML or JSON; must come first
  --preset NAME      a configuration that ships with gar:
{presets}
  --plugin NAME      a module or a .py file with methods of your own; can be
                     given more than once
  --dry-run          show the settings and the preflight, and stop
  --resume RUN       continue an interrupted run, with its own settings
  --allow-config-change
                     with --resume: accept changed settings or data
  --help-all         all settings

Settings, with their defaults:
"""

GROUPS = {
    "model and data": {
        "model.path": "Hub id, folder, embedded",
        "adapter.rank": "LoRA of this rank instead of all weights",
        "data.source": "file (.jsonl .parquet .csv .json), Hub id",
        "data.split": "split of a Hub data set",
        "data.prompt_field": "column of the problem",
        "data.answer_field": "column of the gold answer",
        "data.anchor_fields": "columns of the expert solution",
        "data.template": "think-answer, boxed, plain or auto",
        "data.max_prompt_tokens": "drop longer prompts",
        "seed": "seed of problems, sampling, evaluation",
    },
    "method": {
        "method": "grpo, dapo, ... (docs/methods.md)",
        "variant": "paper or paper-thresholds",
        "reward.bonus_weight": "weight of the alignment bonus",
        "reward.format_penalty": "added for bad format",
        "signal.max_tokens": "most tokens of a response to score",
        "verify.format": "think-answer, boxed or none",
        "verify.verifier": "your own grader, module:function",
    },
    "training (any field of trl.GRPOConfig)": {
        "trl.max_steps": "-1: use trl.num_train_epochs",
        "trl.learning_rate": "learning rate of the optimizer",
        "trl.num_generations": "responses per problem",
        "trl.per_device_train_batch_size": "responses per pass",
        "trl.gradient_accumulation_steps": "passes per step",
        "trl.max_completion_length": "longest response, in tokens",
        "trl.temperature": "sampling temperature",
        "trl.beta": "weight of the KL term",
        "trl.use_vllm": "sample with vLLM",
        "trl.save_steps": "steps between checkpoints",
    },
    "checks and records": {
        "preflight.mode": "first look at rollouts: stop, warn, off",
        "evaluate.sources": "problems to measure, before and after",
        "records.name": "name of the run folder",
    },
}
"""Settings by group, with one line each."""

_TAIL = """
Errors and exit statuses: docs/errors.md
"""


def short_help(config: RunConfig) -> str:
    """The help text, with the values of a configuration as defaults."""
    presets = textwrap.fill(", ".join(preset_names()), 79, initial_indent=" " * 21, subsequent_indent=" " * 21,
                            break_on_hyphens=False)  # fmt: skip
    lines = [_HEAD.format(presets=presets)]
    for title, settings in GROUPS.items():
        lines.append(f"{title}:")
        for name, text in settings.items():
            head = f"  --{name} {_value(config, name)}"
            lines.append(f"{head:<37} {text}")
        lines.append("")
    lines.append("Names of TRL and Hugging Face that are read, too:")
    lines += [f"  {alias:<31} {setting}" for alias, setting in ALIASES.items()]
    return "\n".join(lines).rstrip() + "\n" + _TAIL


def _value(config: RunConfig, name: str) -> str:
    section, _, field = name.partition(".")
    if section == "trl":
        return str(config.trl[field]) if field in config.trl else default_of(field)
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return " ".join(map(str, value)) or "-" if isinstance(value, tuple) else "-" if value is None else str(value)
