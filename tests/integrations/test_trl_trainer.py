"""GARTrainer on the embedded model: real generation, real verification, real optimizer steps."""

import copy
from pathlib import Path

import pandas as pd
import pytest
import torch
from trl import GRPOConfig

from gar import metrics
from gar.analysis import curves
from gar.data.arithmetic import load_arithmetic
from gar.errors import ConfigError
from gar.integrations.trl.arguments import inexact_resumes
from gar.integrations.trl.callbacks import PARTS
from gar.methods import Method, outcome_rewards
from gar.models.embedded import load_embedded
from gar.report import charts
from gar.settings import AdvantageSettings, SignalSettings
from gar.types import Status
from gar.verify import Verifier
from tests.integrations.conftest import SMALL, TrainerFactory
from tests.integrations.replay import NotingTrainer
from tests.models.test_families import ROPES, fresh_means, tiny
from tests.support.autograd import largest_distance
from tests.support.errors import raises
from tests.support.tiny import tiny_qwen3


def test_rewards_advantages_and_metrics_are_those_of_the_records(make_trainer: TrainerFactory):
    """With the paper's advantages, a floor and a further reward function that leaves rows out, over two steps."""

    def shortness(completion_ids, **_):
        return [-len(ids) / 48 if len(ids) % 2 else None for ids in completion_ids]

    trainer, records = make_trainer(
        args={"max_steps": 2, "logging_steps": 2, "reward_weights": [2.0, 0.5]}, reward_funcs=[shortness],
        advantage=AdvantageSettings(ddof=0, eps=1e-6, min_std=0.25),
    )  # fmt: skip
    trainer.train()
    assert len(records) == 2 * 32
    for group in (records[i : i + 8] for i in range(0, 64, 8)):
        # With fewer than two eligible responses nothing is scored.
        num_eligible = sum(r.eligible for r in group)
        assert sum(r.alignment is not None for r in group) == (num_eligible if num_eligible > 1 else 0)
        total = torch.tensor([2 * r.reward - r.num_tokens % 2 * r.num_tokens / 96 for r in group]).double()
        expected = (total - total.mean()) / (total.std(correction=0).clamp(min=0.25) + 1e-6)
        advantages = torch.tensor([r.advantage for r in group], dtype=torch.float64)
        torch.testing.assert_close(advantages, expected, atol=1e-5, rtol=1e-5)
    assert sum(r.bonus > 0 for r in records) > 0

    (row,) = [row for row in trainer.state.log_history if "gar/alignment_mean" in row]
    mean = sum(r.reward for r in records) / 64
    assert row["rewards/gar/mean"] == pytest.approx(mean, abs=1e-6)
    assert row["reward"] == pytest.approx(2 * mean - sum(r.num_tokens % 2 * r.num_tokens for r in records) / 96 / 64)
    assert row["gar/outcome_mean"] == pytest.approx(mean - sum(r.bonus for r in records) / 64, abs=1e-6)
    for name in ("step", "generation", "verification", "gar", "update"):
        assert row[f"time/{name}_seconds"] > 0
    # TRL averages each name over the steps that log it, so a missing status must count as 0.
    flags = {
        "gar/verified": [r.verified for r in records],
        "gar/well_formatted": [r.well_formatted for r in records],
        "gar/eligible": [r.eligible for r in records],
        "gar/scored": [r.alignment is not None for r in records],
        "gar/no_anchor": [not r.anchor for r in records],
        "gar/no_signal": [r.num_scored_tokens == 0 for r in records],
        **{f"verify/{status}": [r.status is status for r in records] for status in Status},
    }
    for name, values in flags.items():
        assert row[f"{name}_fraction"] == pytest.approx(sum(values) / 64), name
    assert row["gar/advantage_abs_mean"] == pytest.approx(sum(abs(r.advantage) for r in records) / 64)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_groups_of_equal_rewards_have_no_advantage(make_trainer: TrainerFactory, scale: str):
    """TRL's float32 mean of equal rewards is not always the reward."""

    def one_of_three(completions, **_):  # equal in each group of eight
        return [(0.1, -0.6, 1 / 3)[i // 8 % 3] for i in range(len(completions))]

    trainer, records = make_trainer(args={"max_steps": 1, "scale_rewards": scale}, reward_funcs=[one_of_three])
    trainer.train()
    groups = [records[i : i + 8] for i in range(0, len(records), 8)]
    equal = [group for group in groups if len({r.reward for r in group}) == 1]
    assert equal
    assert all(r.advantage == 0 for group in equal for r in group)


def test_groups_of_an_evaluation_are_those_of_trl(make_trainer: TrainerFactory):
    """Advantages with TRL's own divisor give TRL's own loss."""
    args = {"loss_type": "dapo", "num_generations_eval": 4, "per_device_eval_batch_size": 16}
    rows = load_arithmetic("test")[:8]
    losses = []
    for advantage in (None, AdvantageSettings(ddof=1, eps=1e-4)):
        trainer, _ = make_trainer(args=args, eval_dataset=rows, advantage=advantage)
        losses.append(trainer.evaluate()["eval_loss"])
    assert losses[0] != 0
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_states_of_responses_that_trl_hides_from_attention_are_not_taken(make_trainer: TrainerFactory):
    """`mask_truncated_completions` hides truncated ones in the pass from which hidden states are captured."""
    short = {"max_completion_length": 20, "learning_rate": 0.0}
    hiding = {"num_iterations": 2, "mask_truncated_completions": True}
    trainer, masked = make_trainer(kind=NotingTrainer, method="alignment-only", args=short | hiding)
    trainer.train()
    plain_trainer, plain = make_trainer(method="alignment-only", args=short)
    assert plain_trainer._states.come_from_sampling()
    plain_trainer.train()
    assert [r.response for r in masked] == [r.response for r in plain]
    scored = [(a, b) for a, b in zip(masked, plain, strict=True) if b.signal_norm is not None]
    truncated = sum(b.truncated for _, b in scored)
    assert 0 < truncated < len(scored)
    for a, b in scored:
        assert a.signal_norm == pytest.approx(b.signal_norm, rel=1e-4)
        assert a.alignment == pytest.approx(b.alignment, abs=1e-5)
        assert a.reward == pytest.approx(b.reward, abs=1e-4)
    anchors = len({a.group_index for a, _ in scored})
    assert (trainer.num_captured, sum(trainer.rows["GAR"])) == (32, truncated + anchors)


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("num_iterations", [1, 2], ids=["states of sampling", "TRL's pass"])
def test_vectors_under_rope_by_length_do_not_depend_on_the_batch(make_trainer: TrainerFactory, num_iterations, rope):
    tokenizer = load_embedded()[1]
    sizes = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    family, settings = ROPES[rope]
    model = tiny(family, **settings | sizes)
    args = {"num_iterations": num_iterations, "max_completion_length": 12}
    trainer, _ = make_trainer(kind=NotingTrainer, model=copy.deepcopy(model), method="alignment-only", args=args)
    trainer.train()
    sequences, means = zip(*trainer.means, strict=True)
    assert {sequence.num_tokens > 16 for sequence in sequences} == {True, False}
    assert largest_distance(torch.stack(means), fresh_means(model, sequences)) < 1e-5


def test_responses_of_only_special_tokens_give_a_defined_result(make_trainer: TrainerFactory):
    trainer, records = make_trainer(problems=load_arithmetic("train")[:4], verifier=Verifier())
    eos = trainer.processing_class.eos_token_id
    trainer._generate_single_turn = lambda prompt_ids, *args, **kwargs: ([[eos] for _ in prompt_ids], None)
    trainer.train()
    assert all(r.response == "" and r.num_scored_tokens == 0 and r.alignment is None and not r.bonus for r in records)
    assert all(r.status == "unparsed" and not r.well_formatted and r.reward == -0.6 for r in records)
    row = trainer.state.log_history[0]
    assert (row["gar/no_signal_fraction"], row["gar/alignment_mean"]) == (1.0, None)
    assert all(tensor.isfinite().all() for tensor in trainer.model.state_dict().values())


def test_completions_are_printed_beside_the_expert_solution(make_trainer: TrainerFactory, monkeypatch, capsys):
    """In a few lines, however many functions there are. TRL's files have a column of ours."""
    monkeypatch.setenv("COLUMNS", "80")
    args = {"max_steps": 2, "log_completions": True, "num_completions_to_print": 2, "logging_steps": 2}
    trainer, records = make_trainer(args=args, problems=load_arithmetic("train")[:4])
    trainer.train()
    printed = capsys.readouterr().out
    assert printed.count("expert solution") == 2  # after the second step, and not again at the end
    assert "Step 2: 2 of 32 completions" in printed
    assert max(len(line) for line in printed.splitlines() if "│" in line) <= 80
    monkeypatch.setenv("COLUMNS", "400")
    (file,) = Path(trainer.args.output_dir).glob("completions/*.parquet")
    table, experts = pd.read_parquet(file), {each.prompt: each.anchors[0].text for each in load_arithmetic("train")[:4]}
    assert list(table["expert solution"]) == [experts[prompt] for prompt in table["prompt"]]
    assert list(table["completion"]) == [record.response for record in records[-32:]]
    unwrapped = " ".join(printed.replace("│", " ").split())
    assert sum(expert in unwrapped for expert in experts.values()) in (1, 2)
    hostile = "\x1b]0;title\x07\x1b[2J[bold]\x9b2J[/bold] [/INST]"
    noted = trainer._logs
    noted["prompt"][0] = noted["extra"]["expert solution"][1] = hostile
    for i in range(len(noted["completion"])):
        noted["completion"][i] = [{"role": "user", "content": hostile}]
    trainer.num_completions_to_print = None
    trainer.log({"loss": 0.0})
    printed = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(printed)
    assert printed.count(r"\x1b]0;title\x07\x1b[2J[bold]\x9b2J[/bold] [/INST]") == 2 + len(noted["prompt"])
    assert hostile in list(pd.read_parquet(file)["expert solution"])  # files keep what was written


def test_own_passes_run_in_the_trainers_precision(make_trainer: TrainerFactory, monkeypatch: pytest.MonkeyPatch):
    trainer, _ = make_trainer()
    monkeypatch.setattr(trainer.accelerator, "autocast", lambda: torch.autocast("cpu", torch.bfloat16))
    ids = torch.arange(6)[None]
    with torch.no_grad(), trainer._states.own_passes() as parts:
        rounded = parts.backbone(input_ids=ids).last_hidden_state
    with torch.no_grad():
        assert not torch.equal(parts.backbone(input_ids=ids).last_hidden_state, rounded)


def test_signal_settings_reach_the_vectors_and_approximate_states_do_not(make_trainer: TrainerFactory):
    quantized, _ = make_trainer(args={"cache_implementation": "quantized"})
    assert not quantized._states.come_from_sampling()
    trainer, records = make_trainer(signal=SignalSettings(max_tokens=2))
    trainer.train()
    assert {row.num_scored_tokens for row in records if row.alignment is not None} == {2}


def test_trainer_refuses_what_would_make_rewards_wrong(make_trainer: TrainerFactory):
    with raises(ConfigError, "trl.scale_rewards"):
        make_trainer(args={"scale_rewards": "batch"}, advantage=AdvantageSettings(ddof=0))
    with raises(ConfigError, "method", "GARTrainer", "gar train"):
        make_trainer(method=Method(name="mine", summary="with a trainer", shape=outcome_rewards, trainer=print))


def test_settings_under_which_a_resume_is_not_exact_are_named(tmp_path: Path):
    saves = {"save_strategy": "steps"}
    for args, field in (
        ({"num_iterations": 2, "steps_per_generation": 4, "save_steps": 1} | saves, None),
        (saves | {"save_only_model": True}, "save_only_model"),
    ):
        reasons = inexact_resumes(GRPOConfig(output_dir=str(tmp_path), **(SMALL | args)))
        assert [reason.partition(" is ")[0] for reason in reasons] == ([f"trl.{field}"] if field else [])


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_not_reported_as_missing_from_a_checkpoint(
    make_trainer: TrainerFactory, tied: bool, monkeypatch: pytest.MonkeyPatch
):
    said: list[str] = []
    monkeypatch.setattr("transformers.trainer.logger.warning", said.append)
    trainer, _ = make_trainer()
    trainer.model = tiny_qwen3(["<eos>"], hidden_size=8, num_hidden_layers=1, tie_word_embeddings=tied)
    weights = trainer.model.state_dict()
    del weights["lm_head.weight"], weights["model.norm.weight"]
    trainer._issue_warnings_after_load(trainer.model.load_state_dict(weights, strict=False))
    assert "model.norm.weight" in said[0]
    assert ("lm_head.weight" in said[0]) == (not tied)


def test_metrics_that_are_named_and_drawn_are_logged(make_trainer: TrainerFactory):
    trainer, _ = make_trainer()
    trainer.train()
    logged = {name for row in trainer.state.log_history for name in row}
    panels = (*charts._PANELS, *curves._PANELS)
    drawn = {name for panel in panels for name in (panel.metric, panel.reference) if name}
    ours = {name for name in vars(metrics).values() if isinstance(name, str) and name.startswith("gar/")}
    parts = {metrics.seconds_of(part) for part in ("step", "update", *PARTS)}
    assert (drawn | ours | parts) - logged == {metrics.GAR_SECONDS}  # slime's
