"""TRL's private parts that GARTrainer relies on (`contract`). A failure shows what a new release changed."""

import ast
import dataclasses
import inspect
import re
from functools import partial
from pathlib import Path

import pytest
import torch
import trl
from datasets import Dataset
from transformers import TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_utils import HubStrategy
from trl import GRPOConfig, GRPOTrainer
from trl.generation import vllm_generation
from trl.rewards import accuracy_reward
from trl.trainer import grpo_trainer
from trl.trainer.utils import RepeatSampler, nanstd

import gar
from gar.config import RunConfig, preset_names, read_preset
from gar.data import encode_prompt
from gar.errors import ConfigError
from gar.integrations.trl import contract, fields
from gar.integrations.trl import rules as trl_rules
from gar.integrations.trl.deciding import reward_name
from gar.integrations.trl.fields import RENAMED, TRACKERS, known_fields, wrong_fields
from gar.models.embedded import load_embedded
from gar.models.generate import _end_ids
from gar.rules import faults
from gar.train.checks import train_facts
from gar.train.rules import RULES
from tests.support.errors import raises

PACKAGE = Path(gar.__file__).parent


def source(name: str) -> str:
    return inspect.getsource(getattr(GRPOTrainer, name))


def test_fields_and_deviation_are_those_that_were_read():
    assert float(nanstd(torch.tensor([1.0, 3.0]))) == pytest.approx(2**0.5)  # ddof 1
    names = {name for rule in trl_rules.RULES for name in rule.names.split() if name.startswith("trl.")}
    unknown = {name.removeprefix("trl.") for name in names} - GRPOConfig.__dataclass_fields__.keys()
    assert unknown == {"dynamic_sampling"}  # announced for a later TRL


def test_every_field_of_trl_that_is_read_is_in_the_contract():
    own = GRPOConfig.__dataclass_fields__.keys() - TrainingArguments.__dataclass_fields__.keys()
    modules = [*PACKAGE.glob("integrations/trl/*.py"), *PACKAGE.glob("train/*.py")]
    nodes = [node for module in modules for node in ast.walk(ast.parse(module.read_text()))]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and _is_configuration(node.value)}
    assert read & own == set(contract.FIELDS), "integrations/trl/contract.py: FIELDS"


def _is_configuration(node: ast.expr) -> bool:
    """Whether it is called as TRL's configuration is: `args`, `self.args`, `self._config`, `arguments`."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name in ("args", "arguments", "_arguments", "_config")


def test_a_field_that_is_gone_is_an_error_that_names_it(monkeypatch):
    monkeypatch.delitem(GRPOConfig.__dataclass_fields__, "num_generations")
    with raises(ConfigError, "trl-version", "no GRPOConfig.num_generations", trl.__version__):
        contract.check_contract()


def test_the_installed_trl_and_transformers_keep_the_contract():
    assert [*contract.changed_signatures(), *contract.changed_bodies()] == []
    contract.check_contract()  # a warning is an error


@pytest.mark.parametrize("name", contract.SIGNATURES)
def test_other_parameters_of_a_hook_are_an_error_that_names_it(name, monkeypatch):
    monkeypatch.setattr(GRPOTrainer, name, lambda self, texts: texts)
    with raises(ConfigError, "trl-version", f"GRPOTrainer.{name}(self, texts)", trl.__version__):
        contract.check_contract()
    monkeypatch.setattr(GRPOTrainer, name, None)
    with raises(ConfigError, "trl-version", f"no GRPOTrainer.{name}"):
        contract.check_contract()


@pytest.mark.parametrize(("path", "text"), [(path, text) for path, texts in contract.BODIES.items() for text in texts])
def test_a_different_body_of_a_hook_is_named(path, text, monkeypatch):
    body, hook = contract._body, path.partition(":")[2]
    first, *rest = text.split(" … ")
    moved = first if rest else "NOTHING"  # a part that comes last, or one that is gone
    changed = body(path).replace(first, "NOTHING") + moved
    monkeypatch.setattr(contract, "_body", lambda name: changed if name == path else body(name))
    assert f"{hook} without '{text}'" in contract.changed_bodies()


def test_a_different_body_of_a_hook_is_a_warning(monkeypatch):
    monkeypatch.setattr(contract, "changed_signatures", list)
    monkeypatch.setattr(contract, "missing_fields", list)
    monkeypatch.setattr(contract, "changed_bodies", lambda: ["GRPOTrainer.log without 'this'"])
    with pytest.warns(UserWarning, match=r"GRPOTrainer\.log without 'this'"):
        contract.check_contract()


def test_a_hook_that_is_gone_or_calls_twice_is_named():
    assert contract._body("trl.trainer.grpo_trainer:GRPOTrainer.nothing") == ""
    assert contract._body("nothing:nothing") == ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GRPOTrainer, "_compute_loss", lambda self, model, inputs: None)
        assert "GRPOTrainer._compute_loss with 'if self.beta != 0.0:' 0 times, not 3" in contract.changed_bodies()


def test_reward_functions_are_named_and_listed_as_we_name_them():
    """`gar.integrations.trl.deciding` names them before TRL does. TRL replaces ids by models in the given list."""
    body = " ".join(source("__init__").split())
    for text in (
        "reward_funcs[i] = AutoModelForSequenceClassification.from_pretrained(",
        'self.reward_func_names.append(get_config_model_id(reward_funcs[i].config).split("/")[-1])',
        "self.reward_func_names.append(get_callable_name(reward_funcs[i]))",
        "self.reward_funcs = reward_funcs",
        "self.reward_funcs.append(get_reward) self.reward_func_names.append(env_type.__name__)",
    ):
        assert text in body, text
    given = (partial(accuracy_reward), accuracy_reward, RepeatSampler(range(2), 1), "org/model")
    assert [reward_name(function) for function in given] == ["accuracy_reward"] * 2 + ["RepeatSampler", "model"]


def test_generate_returns_prompt_ids_completion_ids_and_token_mask_first():
    returned = re.findall(r"return (.+)", source("_generate"))[-1].split(", ")
    assert returned[:3] == ["prompt_ids", "completion_ids", "tool_mask"]
    assert len(returned) == 8


def test_vllm_is_asked_for_probabilities_after_the_temperature_and_none_takes_a_response_out():
    """The ratio to vLLM is of these probabilities. `GARTrainer` leaves out the same responses."""
    assert 'logprobs_mode="processed_logprobs"' in inspect.getsource(vllm_generation)
    scored = " ".join(source("_generate_and_score_completions").split())
    assert "unscorable_mask = torch.isnan(rewards_per_func).all(dim=1)" in scored


TALK = [{"role": "user", "content": "3+4="}, {"role": "assistant", "content": "3+4"}]
"""A prompt whose last message is the assistant's."""


def test_prompts_and_end_tokens_are_those_that_we_render_and_sample_with(tmp_path: Path):
    """A rollout ends at each end token of the model. A prompt gets a generation prompt also after an answer."""
    model, tokenizer = load_embedded()
    model.generation_config.eos_token_id = [7, 8]
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '9' if add_generation_prompt }}"
    endings = _end_ids(model, tokenizer, None)
    assert endings == [tokenizer.eos_token_id, 7, 8]
    arguments = GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[])
    rows = Dataset.from_list([{"prompt": TALK}])
    trainer = GRPOTrainer(model, accuracy_reward, args=arguments, train_dataset=rows, processing_class=tokenizer)
    assert trainer.eos_token_ids == trainer.generation_config.eos_token_id == endings
    (prompt_ids,), *_ = trainer._tokenize_prompts([TALK])
    assert prompt_ids == encode_prompt(tokenizer, TALK)
    assert tokenizer.decode(prompt_ids) == "3 + 4 = 3 + 4 9"


# The tables of `gar.integrations.trl.fields` fit the installed TRL and transformers.

FIELDS = {field.name: field for field in dataclasses.fields(GRPOConfig) if field.init}
NAMED = {
    name
    for rule in (*RULES, *trl_rules.RULES, *trl_rules.RESUME_RULES)
    for name in rule.names.split()
    if name.startswith("trl.")
}
OWNED = {name for rule in RULES if rule.why.startswith("use ") for name in rule.names.split()}


def test_fields_are_those_of_the_class(monkeypatch):
    assert {*known_fields()} == FIELDS.keys()
    found = known_fields()
    known_fields.cache_clear()
    monkeypatch.setattr(fields, "_CLASSES", (("trl", "nowhere.py", "GRPOConfig"),))
    assert {*known_fields()} == {*found}  # from the class, if its source is arranged otherwise
    known_fields.cache_clear()
    assert NAMED - {"trl.reward_funcs", "trl.dynamic_sampling"} <= {f"trl.{name}" for name in FIELDS}


def test_presets_name_fields_that_there_are():
    for name in preset_names():
        assert wrong_fields(read_preset(name).get("trl", {})) == [], name


def test_trackers_are_those_of_transformers():
    assert {*TRACKERS} == INTEGRATION_TO_CALLBACK.keys()


def test_defaults_are_those_of_the_class_and_pass():
    defaults = {name: field.default for name, field in FIELDS.items() if f"trl.{name}" not in OWNED}
    config = RunConfig(trl={name: value for name, value in defaults.items() if isinstance(value, (int, float, str))})
    assert [*wrong_fields(config.trl), *faults(RULES, train_facts(config))] == []


def test_renamed_fields_get_the_name_that_replaced_them():
    for old, new in RENAMED.items():
        name = new.split(",")[0].split()[0]
        assert old not in FIELDS
        assert name == "data.max_prompt_tokens" or name.removeprefix("trl.") in FIELDS
        assert wrong_fields({old: 1})[0][1].partition(" Use ")[2].startswith(f"{new}.")


def test_words_are_those_that_are_compared_with():
    modules = (grpo_trainer, inspect.getmodule(GRPOConfig), HubStrategy)
    source = "".join(map(inspect.getsource, modules))
    allowed = [rule.allowed for rule in RULES if rule.names.startswith("trl.") and isinstance(rule.allowed, tuple)]
    words = [word for words in allowed for word in words if isinstance(word, str)]
    assert not [word for word in words if f'"{word}"' not in source]
