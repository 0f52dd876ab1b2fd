"""GARTrainer on the embedded model: real generation, real verification, real optimizer steps."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig

from gar.data.arithmetic import load_arithmetic
from gar.errors import ConfigError
from gar.integrations.trl.flags import inexact_resumes
from gar.integrations.trl.trainer import GARTrainer
from gar.records import RolloutRecord
from gar.sequences import SequenceReader, SpanRule, TokenSequence, scored_positions, token_pieces
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings
from gar.types import ResponseFormat, Status, Tags, Verdict
from gar.verify import Verifier
from tests.integrations.conftest import SMALL, TrainerFactory


def groups_of(records: list[RolloutRecord]) -> dict[tuple[int, int], list[RolloutRecord]]:
    groups = defaultdict(list)
    for record in records:
        groups[record.step, record.group_index].append(record)
    return groups


def weights_after(trainer: GARTrainer) -> dict[str, Tensor]:
    trainer.train()
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def logged(trainer: GARTrainer, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]


def test_rewards_are_outcome_plus_centered_clipped_bonus(make_trainer: TrainerFactory):
    trainer, records = make_trainer(args={"max_steps": 3})
    trainer.train()
    assert len(records) == 3 * 32
    bonuses = 0
    for group in groups_of(records).values():
        members = [r for r in group if r.alignment is not None]
        mean = sum(r.alignment for r in members) / len(members) if members else math.nan
        for r in group:
            bonus = 0.5 * max(0.0, r.alignment - mean) if r.alignment is not None else 0.0
            assert r.bonus == pytest.approx(bonus, abs=1e-12)
            assert r.reward == pytest.approx(float(r.eligible) + bonus + (0.0 if r.well_formatted else -0.6), abs=1e-12)
            assert r.eligible == (r.verified and r.well_formatted)
        # With fewer than two eligible responses nothing is scored, and nothing is called 0.
        assert len(members) == (sum(r.eligible for r in group) if sum(r.eligible for r in group) > 1 else 0)
        bonuses += sum(r.bonus > 0 for r in group)
    assert bonuses > 0


def test_logged_reward_is_the_mean_of_the_shaped_rewards(make_trainer: TrainerFactory):
    trainer, records = make_trainer()
    trainer.train()
    mean = sum(r.reward for r in records) / len(records)
    assert logged(trainer, "rewards/gar/mean")[0] == pytest.approx(mean, abs=1e-6)
    assert logged(trainer, "reward")[0] == pytest.approx(mean, abs=1e-6)
    assert logged(trainer, "gar/outcome_mean")[0] == pytest.approx(mean - sum(r.bonus for r in records) / 32, abs=1e-6)
    for name in ("step", "generation", "verification", "gar", "update"):
        assert logged(trainer, f"time/{name}_seconds")[0] > 0


def test_alignment_equals_autograd_through_the_models_own_loss(make_trainer: TrainerFactory):
    """The second route: cross-entropy of the model's own logits on the thinking part, differentiated in float64."""
    problems = load_arithmetic("train")[:64]
    trainer, records = make_trainer(problems=problems, args={"learning_rate": 0.0})
    trainer.train()
    model = trainer.model.double().eval()
    tokenizer = trainer.processing_class
    rule = SpanRule(
        thinking=True, max_tokens=768, limit_from="end", tags=Tags(), special_ids=frozenset(tokenizer.all_special_ids)
    )

    def vector(sequence: TokenSequence) -> Tensor:
        ids = torch.tensor([[*sequence.context_ids, *sequence.ids]])
        hidden = model.model(input_ids=ids).last_hidden_state.detach().requires_grad_()
        positions = torch.tensor([len(sequence.context_ids) + p for p in sequence.positions])
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden)[0, positions - 1], ids[0, positions])
        (gradient,) = torch.autograd.grad(loss, hidden)
        return torch.nn.functional.normalize((gradient * hidden.detach())[0].sum(0), dim=0)

    scored = [r for r in records if r.alignment is not None]
    assert len(scored) >= 4
    for r in scored:
        prompt = tokenizer(r.prompt)["input_ids"]
        ids = tokenizer.encode(r.response, add_special_tokens=False)
        response = TokenSequence(
            context_ids=prompt, ids=ids, positions=scored_positions(ids, token_pieces(tokenizer), rule)
        )
        anchor = SequenceReader(tokenizer, rule).anchor(prompt, problems[r.group_index].anchors[0].text)
        assert r.alignment == pytest.approx(float(vector(response) @ vector(anchor)), abs=1e-5)
        assert r.num_scored_tokens == len(response.positions)


def test_grpo_equals_gar_grpo_with_beta_0_bit_for_bit(make_trainer: TrainerFactory):
    plain = weights_after(make_trainer(method="grpo", args={"max_steps": 2})[0])
    without_bonus = weights_after(make_trainer(reward=RewardSettings(bonus_weight=0.0), args={"max_steps": 2})[0])
    shaped = weights_after(make_trainer(args={"max_steps": 2})[0])
    assert all(torch.equal(plain[name], without_bonus[name]) for name in plain)
    assert any(not torch.equal(plain[name], shaped[name]) for name in plain)


def own_rows(trainer: GARTrainer) -> list[int]:
    """Grows by the responses of each pass without a gradient that is no step of generation."""
    rows: list[int] = []

    def note(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        counts = not torch.is_grad_enabled() and not output.past_key_values and kwargs.get("use_cache") is not True
        rows.append(counts * len(output.last_hidden_state))

    trainer._states.policy.backbone.register_forward_hook(note, with_kwargs=True)
    return rows


@pytest.mark.parametrize("args", [{"steps_per_generation": 4, "per_device_train_batch_size": 8}, {"num_iterations": 2}])
def test_alignment_from_captured_hidden_states_equals_that_from_an_own_pass(make_trainer: TrainerFactory, args: dict):
    captured_trainer, captured = make_trainer(args=args | {"learning_rate": 0.0})
    rows_of_passes = own_rows(captured_trainer)
    captured_trainer.train()
    own_trainer, own = make_trainer(args={"learning_rate": 0.0})
    own_trainer.train()
    assert [r.response for r in captured] == [r.response for r in own]
    assert [r.alignment is None for r in captured] == [r.alignment is None for r in own]
    scored = [(a.alignment, b.alignment) for a, b in zip(captured, own, strict=True) if a.alignment is not None]
    assert scored
    assert all(a == pytest.approx(b, abs=1e-5) for a, b in scored)
    # Besides TRL's own log-prob pass over the 32 rollouts, only anchors went through the backbone.
    assert sum(rows_of_passes) == 32 + len({r.group_index for r in captured if r.alignment is not None})


@pytest.mark.parametrize(("room", "own"), [(2**30, False), (64 * 128 * 4, True)], ids=["kept", "too large"])
def test_states_of_sampling_spare_the_responses_a_pass(make_trainer: TrainerFactory, monkeypatch, room: int, own: bool):
    """On policy: only anchors go through the backbone, unless the states of sampling would take too much memory."""
    expected_trainer, expected = make_trainer(args={"num_iterations": 2, "learning_rate": 0.0})
    expected_trainer.train()
    monkeypatch.setattr("gar.integrations.trl.states.MOST_CAPTURED_BYTES", room)
    trainer, records = make_trainer()
    rows = own_rows(trainer)
    trainer.train()
    scored = [r for r in records if r.alignment is not None]
    assert sum(rows) == len({r.group_index for r in scored}) + own * len(scored)
    alignments = [r.alignment for r in records if r.alignment is not None]
    assert alignments == pytest.approx([r.alignment for r in expected if r.alignment is not None], abs=1e-5)


def test_states_of_sampling_with_a_quantized_cache_are_not_taken(make_trainer: TrainerFactory):
    trainer, _ = make_trainer()
    assert trainer._states.come_from_sampling()
    quantized, _ = make_trainer(args={"cache_implementation": "quantized"})
    assert not quantized._states.come_from_sampling()


@pytest.mark.parametrize("method", ["alignment-only", "g2rl"])
def test_states_of_responses_that_trl_hides_from_attention_are_not_taken(make_trainer: TrainerFactory, method: str):
    """`mask_truncated_completions` does that to truncated ones, in the pass whose hidden states are captured."""
    short = {"max_completion_length": 20, "learning_rate": 0.0}
    trainer, masked = make_trainer(
        method=method, args=short | {"num_iterations": 2, "mask_truncated_completions": True}
    )
    rows = own_rows(trainer)
    trainer.train()
    plain_trainer, plain = make_trainer(method=method, args=short)
    plain_trainer.train()
    assert [r.response for r in masked] == [r.response for r in plain]
    scored = [(a, b) for a, b in zip(masked, plain, strict=True) if b.signal_norm is not None]
    truncated = sum(b.truncated for _, b in scored)
    assert 0 < truncated < len(scored)
    for a, b in scored:
        assert a.signal_norm == pytest.approx(b.signal_norm, rel=1e-4)
        assert a.alignment == (None if b.alignment is None else pytest.approx(b.alignment, abs=1e-5))
        assert a.reward == pytest.approx(b.reward, abs=1e-4)
    anchors = len({a.group_index for a, _ in scored}) if method == "alignment-only" else 0
    assert sum(rows) == 32 + truncated + anchors  # TRL's own pass, and one over what it hid


def test_missing_anchors_earn_no_bonus_and_are_counted(make_trainer: TrainerFactory):
    with_anchor = load_arithmetic("train")[:8]
    problems = [dataclasses.replace(p, anchors=()) if i % 2 else p for i, p in enumerate(with_anchor)]
    trainer, records = make_trainer(problems=problems, args={"max_steps": 2})
    trainer.train()
    bare = [r for r in records if r.group_index % 2]
    assert bare
    assert all(r.alignment is None and r.bonus == 0.0 and not r.anchor for r in bare)
    assert any(r.alignment is not None for r in records)
    assert sum(logged(trainer, "gar/no_anchor_fraction")) / 2 == len(bare) / len(records)


def test_problems_that_no_one_solves_give_a_defined_result(make_trainer: TrainerFactory):
    problems = [dataclasses.replace(p, answer="77") for p in load_arithmetic("train")[:8]]
    trainer, records = make_trainer(problems=problems, verifier=Verifier())
    trainer.train()
    assert all(not r.eligible and r.alignment is None and r.bonus == 0.0 for r in records)
    assert logged(trainer, "gar/alignment_mean") == [None]
    assert all(tensor.isfinite().all() for tensor in trainer.model.state_dict().values())


def test_paper_advantages_and_min_std_are_applied(make_trainer: TrainerFactory):
    settings = AdvantageSettings(ddof=0, eps=1e-6, min_std=0.25)
    trainer, records = make_trainer(advantage=settings, args={"max_steps": 2})
    trainer.train()
    for group in groups_of(records).values():
        rewards = torch.tensor([r.reward for r in group], dtype=torch.float64)
        expected = (rewards - rewards.mean()) / (rewards.std(correction=0).clamp(min=0.25) + 1e-6)
        advantages = torch.tensor([r.advantage for r in group], dtype=torch.float64)
        torch.testing.assert_close(advantages, expected, atol=1e-6, rtol=1e-6)


def test_further_reward_functions_are_added_with_their_weights(make_trainer: TrainerFactory):
    def shortness(completion_ids, **_):
        return [-len(ids) / 48 for ids in completion_ids]

    settings, weights = AdvantageSettings(ddof=0, eps=0.0), {"reward_weights": [1.0, 0.5]}
    trainer, records = make_trainer(reward_funcs=[shortness], args=weights, advantage=settings)
    trainer.train()
    for group in groups_of(records).values():
        total = torch.tensor([r.reward - 0.5 * r.num_tokens / 48 for r in group], dtype=torch.float64)
        expected = (total - total.mean()) / total.std(correction=0)
        advantages = torch.tensor([r.advantage for r in group], dtype=torch.float64)
        torch.testing.assert_close(advantages, expected, atol=1e-5, rtol=1e-5)


def test_evaluation_uses_the_outcome_alone(make_trainer: TrainerFactory):
    problems = load_arithmetic("train")[:8]
    trainer, records = make_trainer(
        problems=problems, eval_dataset=problems, args={"per_device_eval_batch_size": 32, "num_generations_eval": 8}
    )
    metrics = trainer.evaluate()
    assert metrics["eval_rewards/gar/mean"] == pytest.approx(metrics["eval_reward"])
    assert not records


class GoldVerifier:
    """Notes what it is given; nothing is right."""

    format: ResponseFormat = "none"
    tags = Tags()

    def __init__(self) -> None:
        self.golds: list[str] = []

    def verify(
        self, responses: Sequence[str], golds: Sequence[str], *, prefilled_think: Sequence[bool], prompts: Sequence[str]
    ) -> list:
        self.golds += golds
        return [Verdict(status=Status.WRONG, grade=0.0, verified=False, well_formatted=True) for _ in responses]


EVALUATION = {"per_device_eval_batch_size": 16, "num_generations_eval": 8}


@pytest.mark.parametrize("named", [False, True])
def test_evaluation_problems_are_graded_against_their_own_answers(make_trainer: TrainerFactory, named: bool):
    verifier = GoldVerifier()
    train, held_out = load_arithmetic("train")[:8], load_arithmetic("test")[:4]
    held_out = [dataclasses.replace(p, answer=f"gold {i}") for i, p in enumerate(held_out)]
    sets = {"a": held_out[:2], "b": held_out[2:]} if named else held_out
    trainer, _ = make_trainer(problems=train, verifier=verifier, eval_dataset=sets, args=EVALUATION)
    trainer.evaluate()
    assert sorted(verifier.golds) == [f"gold {i}" for i in range(4) for _ in range(8)]
    rows = [row for row in trainer.state.log_history if row.get("eval_reward") == 0.0]
    names = ["a_", "b_"] if named else [""]
    assert [f"eval_{name}loss" in row for name, row in zip(names, rows, strict=True)] == [True] * len(names)
    verifier.golds.clear()
    trainer.train()
    assert set(verifier.golds) <= {p.answer for p in train}


def test_response_of_only_special_tokens_is_without_signal(make_trainer: TrainerFactory):
    trainer, records = make_trainer(problems=load_arithmetic("train")[:4], verifier=Verifier())
    eos = trainer.processing_class.eos_token_id
    trainer._generate_single_turn = lambda prompt_ids, *args, **kwargs: ([[eos] for _ in prompt_ids], None)
    trainer.train()
    assert all(r.response == "" and r.num_scored_tokens == 0 and r.alignment is None for r in records)
    assert all(r.status == "unparsed" and not r.well_formatted and r.reward == -0.6 for r in records)
    assert logged(trainer, "gar/no_signal_fraction") == [1.0]


def test_signal_settings_reach_the_vectors(make_trainer: TrainerFactory):
    alignments: list[list[float]] = []
    for setting in ({}, {"max_tokens": 2}, {"kind": "hidden"}):
        trainer, records = make_trainer(signal=SignalSettings(**setting), args={"learning_rate": 0.0})
        trainer.train()
        alignments.append([r.alignment for r in records if r.alignment is not None])
    assert all(other != alignments[0] for other in alignments[1:])


def test_trainer_refuses_what_would_make_rewards_wrong(make_trainer: TrainerFactory):
    for field, value in (
        ("multi_objective_aggregation", "normalize_then_sum"),
        ("remove_unused_columns", True),
        ("scale_rewards", "batch"),
    ):
        with pytest.raises(ConfigError, match=f"trl.{field} is {value}, expected"):
            make_trainer(args={field: value}, advantage=AdvantageSettings(ddof=0))


def test_settings_under_which_a_resume_is_not_exact_are_named(tmp_path: Path):
    saves = {"save_strategy": "steps"}
    two_steps = {"num_iterations": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
    for args, field in (
        ({}, None),
        (two_steps | saves | {"save_steps": 6}, "save_steps"),  # a generation lasts four optimizer steps
        (two_steps | saves | {"save_steps": 4}, None),
        (saves | {"save_only_model": True}, "save_only_model"),
        ({"sync_ref_model": True, "beta": 0.1}, "sync_ref_model"),
        ({"ignore_data_skip": True}, "ignore_data_skip"),
    ):
        reasons = inexact_resumes(GRPOConfig(output_dir=str(tmp_path), **(SMALL | args)))
        assert [reason.partition(" is ")[0] for reason in reasons] == ([f"trl.{field}"] if field else [])


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_not_reported_as_missing_from_a_checkpoint(tied: bool, monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    monkeypatch.setattr("transformers.trainer.logger.warning", said.append)
    trainer = object.__new__(GARTrainer)
    trainer.model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
            tie_word_embeddings=tied,
        )
    )  # fmt: skip
    weights = trainer.model.state_dict()
    del weights["lm_head.weight"], weights["model.norm.weight"]
    trainer._issue_warnings_after_load(trainer.model.load_state_dict(weights, strict=False))
    assert "model.norm.weight" in said[0]
    assert ("lm_head.weight" in said[0]) == (not tied)


def test_lora_trains_and_head_adapter_is_refused(make_trainer: TrainerFactory):
    from peft import LoraConfig

    trainer, records = make_trainer(peft_config=LoraConfig(target_modules=["q_proj", "v_proj"]), args={"max_steps": 2})
    trainer.train()
    assert any(r.alignment is not None for r in records)
    with pytest.raises(ValueError, match="PEFT adapter to `lm_head` is not supported"):  # TRL's own words
        make_trainer(peft_config=LoraConfig(target_modules=["q_proj", "lm_head"]))
