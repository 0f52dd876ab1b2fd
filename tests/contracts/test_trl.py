"""What GARTrainer relies on in TRL and TRL does not promise. A failure says what a new release changed."""

import inspect
import re

import pytest
import torch
import trl
from transformers.trainer_utils import rotate_checkpoints
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import RepeatSampler, nanstd


def parameters(name: str) -> list[str]:
    return list(inspect.signature(getattr(GRPOTrainer, name)).parameters)


def source(name: str) -> str:
    return inspect.getsource(getattr(GRPOTrainer, name))


def test_version_is_the_one_that_was_read():
    assert trl.__version__.startswith("1.16.")


def test_overridden_methods_keep_their_signatures():
    assert parameters("_generate") == ["self", "prompts"]
    assert parameters("_generate_and_score_completions") == ["self", "inputs"]
    assert parameters("_calculate_rewards") == ["self", "inputs", "prompts", "completions", "completion_ids_list"]
    taken = ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]
    assert parameters("_get_per_token_logps_and_entropies")[:5] == taken


def test_an_epoch_is_run_by_a_method_of_its_own_with_keywords():
    """It is skipped after the last step, and put in its own order: neither the Trainer nor TRL does so."""
    assert {"epoch", "epochs_trained"} <= set(parameters("_run_epoch"))
    loop = source("_inner_training_loop")
    assert "self._run_epoch(\n                model=model,\n                epoch=epoch,\n" in loop
    assert "if self.control.should_training_stop:\n                break" in loop
    draw = inspect.getsource(RepeatSampler.__iter__)
    assert "torch.randperm(self.num_samples, generator=self.generator)" in draw
    assert draw.count("generator=") == 1


def test_checkpoints_are_not_rotated_without_a_limit():
    rotating, saving = inspect.getsource(rotate_checkpoints), source("_maybe_log_save_evaluate")
    assert "if save_total_limit is None or save_total_limit <= 0:\n        return" in rotating
    order = [saving.index(call) for call in ("self.log(", "self._save_checkpoint(", "callback_handler.on_save(")]
    assert order == sorted(order)


def test_generate_returns_prompt_ids_completion_ids_and_token_mask_first():
    returned = re.findall(r"return (.+)", source("_generate"))[-1].split(", ")
    assert returned[:3] == ["prompt_ids", "completion_ids", "tool_mask"]
    assert len(returned) == 8


def test_rewards_are_gathered_over_all_ranks_before_they_return():
    last = "rewards_per_func = gather(rewards_per_func)\n        return rewards_per_func"
    assert last in source("_calculate_rewards")


def test_generation_happens_before_log_probs_and_log_probs_before_rewards():
    body = source("_generate_and_score_completions")
    calls = ("_generate", "_get_per_token_logps_and_entropies", "_calculate_rewards")
    order = [body.index(f"self.{name}(") for name in calls]
    assert order == sorted(order)


def test_old_log_probs_are_computed_under_the_condition_that_we_repeat_and_before_the_reference():
    body = " ".join(source("_generate_and_score_completions").split())
    assert (
        "generate_every = self.args.steps_per_generation * self.num_iterations # generation frequency "
        "if self.args.gradient_accumulation_steps % generate_every != 0 or ( "
        "self.use_vllm and self.vllm_importance_sampling_correction ): old_per_token_logps"
    ) in body
    first = body.index("old_per_token_logps, _, _ = self._get_per_token_logps_and_entropies( self.model,")
    assert first < body.index("ref_per_token_logps, _, _ = self._get_per_token_logps_and_entropies(")


def test_loss_reads_advantages_per_response_and_per_token_after_the_log_probs():
    body = source("_compute_loss")
    assert 'advantages = inputs["advantages"]' in body
    assert "advantages.dim() == 1" in body
    assert "advantages.unsqueeze(1)" in body
    assert parameters("_compute_loss") == ["self", "model", "inputs"]
    assert body.count("self._get_per_token_logps_and_entropies(") == 1
    assert body.index("self._get_per_token_logps_and_entropies(") < body.index('inputs["advantages"]')


def test_loss_adds_kl_by_beta_and_averages_per_response_under_loss_type_grpo():
    body = " ".join(source("_compute_loss").split())
    assert body.count("if self.beta != 0.0:") == 3
    assert "loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()" in body
    assert 'normalizer = self.current_gradient_accumulation_steps if mode == "train" else 1.0' in body


def test_constants_of_the_group_normalization_are_those_that_we_state():
    assert "advantages / (std_rewards + 1e-4)" in source("_generate_and_score_completions")
    assert float(nanstd(torch.tensor([1.0, 3.0]))) == pytest.approx(2**0.5)  # ddof 1


def test_config_has_the_fields_that_we_read():
    read = """multi_objective_aggregation scale_rewards num_iterations steps_per_generation max_completion_length
              chat_template_kwargs reward_weights disable_dropout generation_batch_size num_generations"""
    assert set(read.split()) <= GRPOConfig.__dataclass_fields__.keys()
