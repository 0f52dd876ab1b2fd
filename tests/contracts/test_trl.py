"""TRL's private parts that GARTrainer relies on. A failure shows what a new release changed."""

import dataclasses
import inspect
import re
from functools import partial

import pytest
import torch
import trl
from transformers.trainer_utils import rotate_checkpoints
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward
from trl.trainer import grpo_trainer
from trl.trainer.utils import RepeatSampler, nanstd

from gar.integrations.trl.deciding import reward_name
from gar.integrations.trl.fields import check_fields, default_of, field_types
from gar.rules import RULES


def parameters(name: str) -> list[str]:
    return list(inspect.signature(getattr(GRPOTrainer, name)).parameters)


def source(name: str) -> str:
    return inspect.getsource(getattr(GRPOTrainer, name))


def test_version_fields_and_deviation_are_those_that_were_read():
    assert trl.__version__.startswith("1.16.")
    assert float(nanstd(torch.tensor([1.0, 3.0]))) == pytest.approx(2**0.5)  # ddof 1
    read = """multi_objective_aggregation scale_rewards num_iterations steps_per_generation max_completion_length
              chat_template_kwargs reward_weights disable_dropout generation_batch_size num_generations"""
    assert set(read.split()) <= GRPOConfig.__dataclass_fields__.keys()


def test_overridden_methods_keep_their_signatures():
    assert parameters("_generate") == ["self", "prompts"]
    assert parameters("_generate_and_score_completions") == ["self", "inputs"]
    assert parameters("_calculate_rewards") == ["self", "inputs", "prompts", "completions", "completion_ids_list"]
    assert parameters("_compute_loss") == ["self", "model", "inputs"]
    assert {"epoch", "epochs_trained"} <= set(parameters("_run_epoch"))
    taken = ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]
    assert parameters("_get_per_token_logps_and_entropies")[:5] == taken


def test_bodies_do_what_we_count_on():
    rotating, drawing = inspect.getsource(rotate_checkpoints), inspect.getsource(RepeatSampler.__iter__)
    scoring, loss, saving = (
        source(name) for name in ("_generate_and_score_completions", "_compute_loss", "_maybe_log_save_evaluate")
    )
    for body, *texts in (
        # A method with keywords runs an epoch: we skip it after the last step, and restore its order.
        (source("_inner_training_loop"), "self._run_epoch( model=model, epoch=epoch,",
         "if self.control.should_training_stop: break"),
        (drawing, "torch.randperm(self.num_samples, generator=self.generator)"),
        # Checkpoints are not rotated without a limit.
        (rotating, "if save_total_limit is None or save_total_limit <= 0: return"),
        # Rewards are gathered over all ranks before they return.
        (source("_calculate_rewards"), "rewards_per_func = gather(rewards_per_func) return rewards_per_func"),
        # Old log-probabilities are computed under the condition that we repeat. The group's divisor is as we state.
        (scoring, "generate_every = self.args.steps_per_generation * self.num_iterations # generation frequency "
         "if self.args.gradient_accumulation_steps % generate_every != 0 or ( "
         "self.use_vllm and self.vllm_importance_sampling_correction ): old_per_token_logps",
         "advantages / (std_rewards + 1e-4)"),
        # The loss reads advantages per response and per token, adds KL by beta, and averages per response.
        (loss, 'advantages = inputs["advantages"]', "advantages.dim() == 1", "advantages.unsqueeze(1)",
         "loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",
         'normalizer = self.current_gradient_accumulation_steps if mode == "train" else 1.0'),
    ):  # fmt: skip
        for text in texts:
            assert text in " ".join(body.split()), text
    assert drawing.count("generator=") == 1
    assert loss.count("if self.beta != 0.0:") == 3
    assert loss.count("self._get_per_token_logps_and_entropies(") == 1
    for body, *calls in (  # in this order
        (saving, "self.log(", "self._save_checkpoint(", "callback_handler.on_save("),
        (scoring, "self._generate(", "self._get_per_token_logps_and_entropies(", "self._calculate_rewards("),
        (scoring, "old_per_token_logps, _, _ =", "ref_per_token_logps, _, _ ="),
        (loss, "self._get_per_token_logps_and_entropies(", 'inputs["advantages"]'),
    ):
        places = [body.index(call) for call in calls]
        assert places == sorted(places), calls


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


# The tables of `gar.integrations.trl.fields` fit the installed TRL and transformers.

FIELDS = {field.name: field for field in dataclasses.fields(GRPOConfig) if field.init}
NAMED = {name for rule in RULES for name in rule.names.split() if name.startswith("trl.")}
OWNED = {name for rule in RULES if rule.why.startswith("use ") for name in rule.names.split()}


def test_fields_are_those_of_the_class():
    assert field_types().keys() == FIELDS.keys()
    assert NAMED - {"trl.reward_funcs", "trl.dynamic_sampling"} <= {f"trl.{name}" for name in FIELDS}


def test_defaults_are_those_of_the_class_and_pass():
    for name in ("learning_rate", "num_generations", "max_completion_length", "temperature", "max_steps"):
        assert default_of(name) == str(FIELDS[name].default)
    defaults = {name: field.default for name, field in FIELDS.items() if f"trl.{name}" not in OWNED}
    check_fields({name: value for name, value in defaults.items() if isinstance(value, (int, float, str))})


def test_words_are_those_that_are_compared_with():
    source = inspect.getsource(grpo_trainer) + inspect.getsource(inspect.getmodule(GRPOConfig))
    allowed = [rule.allowed for rule in RULES if rule.where == "gar train" and isinstance(rule.allowed, tuple)]
    words = [word for words in allowed for word in words if isinstance(word, str)]
    assert not [word for word in words if f'"{word}"' not in source]
