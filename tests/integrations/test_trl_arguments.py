"""TRL's configuration with a method's own fields, from the command line and from Python, and a run's callback."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState
from transformers.trainer_callback import CallbackHandler
from trl import GRPOConfig

from gar.config import make_config
from gar.errors import ConfigError
from gar.integrations.trl.arguments import DEFAULTS, TRL, grpo_arguments, in_folder, trl_flags, with_method
from gar.integrations.trl.callbacks import RunCallback
from gar.integrations.trl.fields import TESTED, known_fields, trl_number, wrong_fields
from gar.methods import METHODS
from gar.records import open_run
from gar.step import plan_shaping
from tests.support.errors import raises
from tests.support.runs import begun_run

CPU = {"use_cpu": True, "bf16": False}
UPDATES = {"maspo": {"num_iterations": 2}}
OTHERWISE = [("dr-grpo", "scale_rewards", "batch"), ("dapo", "epsilon_high", 0.3), ("maspo", "loss_type", "cispo")]


def from_command_line(folder: Path, method: str, **trl: Any) -> GRPOConfig:
    return grpo_arguments(make_config({"method": method, "trl": {**CPU, **UPDATES.get(method, {}), **trl}}))[0]


def from_python(folder: Path, method: str, **trl: Any) -> GRPOConfig:
    args = GRPOConfig(output_dir=str(folder), **(CPU | UPDATES.get(method, {}) | trl))
    args = with_method(args, METHODS[method])
    plan_shaping(TRL, method, flags=trl_flags(args))  # as GARTrainer does
    return args


def test_fields_of_a_method_hold_and_the_users_stay(tmp_path: Path):
    for make in (from_command_line, from_python):
        for method in (method for method in METHODS.values() if method.trl):
            for chosen in ({}, method.trl):
                args = make(tmp_path, method.name, max_steps=2, **chosen)
                assert {name: getattr(args, name) for name in method.trl} == dict(method.trl)
        assert make(tmp_path, "dr-grpo", scale_rewards=False).scale_rewards == "none"  # the other spelling
        for method, name, value in OTHERWISE:
            with raises(ConfigError, f"trl.{name}"):
                make(tmp_path, method, **{name: value})
    with raises(ConfigError, "updates_per_rollout"):
        from_python(tmp_path, "maspo", num_iterations=1)
    with raises(ConfigError, "trl.loss_type"):  # on the command line TRL's own default is a choice, too
        from_command_line(tmp_path, "dr-grpo", loss_type="dapo")
    assert from_python(tmp_path, "dr-grpo", loss_type="dapo").loss_type == "dr_grpo"
    assert from_command_line(tmp_path, "gar-grpo").loss_type == DEFAULTS["loss_type"] == "grpo"
    assert from_command_line(tmp_path, "gar-grpo", loss_type="bnpo").loss_type == "bnpo"
    args = GRPOConfig(output_dir=str(tmp_path), **CPU)
    assert from_python(tmp_path, "gar-grpo").loss_type == args.loss_type
    before = dict(vars(args))
    assert with_method(args, METHODS["maspo"]) is not args
    assert vars(args) == before
    assert with_method(args, METHODS["gar-grpo"]) is args


def test_what_trl_would_reject_late_or_not_at_all_is_an_error_of_its_setting(tmp_path: Path):
    for name, value in (
        ("max_steps", 10.5),
        ("max_steps", True),
        ("max_steps", "abc"),
        ("learning_rate", None),
        ("bf16", "no"),  # a word, so true, in YAML 1.2
        ("num_generations", []),
    ):
        assert [setting for setting, _ in wrong_fields({name: value})] == [f"trl.{name}"]
    for trl, code in (
        ({"optim": "adamw_troch"}, "trl.optim"),
        ({"num_generation": 4}, "trl.num_generation"),
        ({"per_device_train_batch_size": 10, "num_generations": 4}, "config"),
    ):
        with raises(ConfigError, code):
            from_command_line(tmp_path, "gar-grpo", **trl)
    accepted = {"save_steps": 0.5, "bf16": None, "scale_rewards": True, "report_to": "none"}
    assert wrong_fields(accepted) == []
    from_command_line(tmp_path, "gar-grpo", **accepted)


def test_an_unknown_field_names_an_untested_release(monkeypatch: pytest.MonkeyPatch):
    for installed, named in ((f"{TESTED}.7", False), ("1.99.0", True)):
        monkeypatch.setattr("importlib.metadata.version", lambda package, version=installed: version)
        ((_, text),) = wrong_fields({"lerning_rate": 1})
        assert (f"TRL {installed} is installed. gar and its presets are tested with {TESTED}." in text) == named


def test_a_field_that_trl_lacks_is_no_number(monkeypatch: pytest.MonkeyPatch):
    config = make_config({"trl": {"num_generations": 4, "steps_per_generation": None}})
    assert (trl_number(config, "num_generations"), trl_number(config, "steps_per_generation")) == (4, 0)
    without = {name: field for name, field in known_fields().items() if name != "num_generations"}
    monkeypatch.setattr("gar.integrations.trl.fields.known_fields", lambda: without)
    with raises(ConfigError, "trl-version", "num_generations"):
        trl_number(config, "num_generations")


def test_the_embedded_models_have_room_for_prompt_and_response(tmp_path: Path):
    for changes, expected in (
        ({}, 64),
        ({"trl": {**CPU, "max_completion_length": 48}}, 48),
        ({"model": {"path": "Qwen/Qwen3-0.6B"}}, GRPOConfig.max_completion_length),
    ):
        assert grpo_arguments(make_config({"trl": CPU} | changes))[0].max_completion_length == expected


def test_an_evaluation_goes_to_the_run_folder_and_to_report_to(tmp_path: Path):
    rows: list[tuple[int, dict[str, float]]] = []
    reporter: Any = SimpleNamespace(  # in place of trackio, wandb or TensorBoard
        on_step_end=lambda *_, **__: None,
        on_log=lambda args, state, control, *, logs, **_: rows.append((state.global_step, logs)),
    )
    folder = begun_run(tmp_path)
    rates = iter((0.25, 0.5))
    ours = RunCallback(folder, evaluate=lambda trainer: {"pass@1": next(rates)}, evaluate_every=2)
    handler: Any = CallbackHandler([ours, reporter], SimpleNamespace(), None, None, None)
    ours.trainer = SimpleNamespace(callback_handler=handler)
    args = SimpleNamespace(logging_strategy="steps")
    for step in range(1, 5):
        control = handler.on_step_end(args, TrainerState(global_step=step), TrainerControl(should_log=True))
        assert control.should_log  # the step's own row is still to come
    assert rows == [(2, {"pass@1": 0.25}), (4, {"pass@1": 0.5})]
    assert open_run(folder.path).metrics == [{"step": 2, "pass@1": 0.25}, {"step": 4, "pass@1": 0.5}]


def test_a_reporter_gets_the_name_of_the_run_folder(tmp_path: Path):
    def arguments(trl: dict[str, Any]) -> GRPOConfig:
        config = make_config({"trl": trl})
        return in_folder(grpo_arguments(config)[0], config, tmp_path / "seven")

    args = arguments({"report_to": "trackio"})
    assert args.output_dir == str(tmp_path / "seven" / "checkpoints")
    assert (args.report_to, args.run_name, args.project) == (["trackio"], "seven", "gar")
    assert arguments({"run_name": "mine"}).run_name == "mine"
    assert arguments({}).report_to == []


def test_without_a_terminal_each_logged_step_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ours: Any = RunCallback(begun_run(tmp_path))
    state = TrainerState(global_step=2, max_steps=4, is_world_process_zero=True)
    ours.on_train_begin(GRPOConfig(str(tmp_path), use_cpu=True, bf16=False), state, None)
    for step in (3, 4):
        state.global_step = step
        logs = {"reward": 0.5, "gar/eligible_fraction": 0.25, "gar/alignment_mean": None, "time/step_seconds": 2.04}
        ours.on_log(None, state, None, logs=logs)
    ours.on_log(None, state, None, logs={"eval/test/pass@1": 0.5})  # an evaluation says what it does by itself
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "step 3/4  reward 0.500  correct 0.250  2.0 s  00:00 left",
        "step 4/4  reward 0.500  correct 0.250  2.0 s  00:00 left",
    ]


def test_a_resumed_run_has_the_intervals_of_its_settings(tmp_path: Path):
    args = GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, save_steps=1, logging_steps=3)
    state = TrainerState(global_step=4, max_steps=8, save_steps=2, logging_steps=1)  # as the checkpoint has them
    RunCallback(begun_run(tmp_path)).on_train_begin(args, state, None)
    assert (state.save_steps, state.logging_steps) == (1, 3)


def faults(**fields: Any) -> list[str]:
    """The settings that break a rule on sampling."""
    args = GRPOConfig("out", use_cpu=True, bf16=False, **fields)
    try:
        plan_shaping(TRL, "grpo", flags=trl_flags(args))
    except ConfigError as error:
        return [error.code]
    return []


@pytest.mark.parametrize("chosen", [{"top_p": 0.9}, {"top_k": 20}, {"generation_kwargs": {"min_p": 0.1}}])
def test_filtered_sampling_by_vllm_needs_a_correction_per_token(chosen):
    assert faults(**chosen) == faults(use_vllm=True) == []
    assert faults(**chosen, use_vllm=True) == ["trl.vllm_importance_sampling_mode"]
    assert faults(**chosen, use_vllm=True, vllm_importance_sampling_correction=False) == []
    assert faults(**chosen, use_vllm=True, vllm_importance_sampling_mode="token_truncate") == []


def test_a_temperature_that_vllm_would_raise_is_an_error():
    assert faults(temperature=1e-4) == faults(temperature=0.01, use_vllm=True) == []
    assert faults(temperature=1e-4, use_vllm=True) == ["trl.temperature"]
