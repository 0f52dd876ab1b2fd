"""What a run's callback writes, and what other callbacks receive."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import CallbackHandler

from gar.config import make_config
from gar.integrations.trl.arguments import grpo_arguments
from gar.integrations.trl.callbacks import RunCallback
from gar.records import RunFolder, open_run


class Reporter(TrainerCallback):
    """Stands for trackio, wandb or TensorBoard."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.rows.append((state.global_step, dict(logs)))


def test_an_evaluation_goes_to_the_run_folder_and_to_report_to(tmp_path: Path):
    folder, reporter = RunFolder.create(tmp_path, "run"), Reporter()
    ours = RunCallback(folder, evaluate=lambda step: {"pass@1": step / 8}, evaluate_every=2)
    handler: Any = CallbackHandler([ours, reporter], SimpleNamespace(), None, None, None)
    ours.trainer = SimpleNamespace(callback_handler=handler)
    args = SimpleNamespace(logging_strategy="steps")
    for step in range(1, 5):
        control = handler.on_step_end(args, TrainerState(global_step=step), TrainerControl(should_log=True))
        assert control.should_log  # the step's own row is still to come
    assert reporter.rows == [(2, {"pass@1": 0.25}), (4, {"pass@1": 0.5})]
    assert open_run(folder.path, strict=False).metrics == [{"step": 2, "pass@1": 0.25}, {"step": 4, "pass@1": 0.5}]


def test_a_reporter_gets_the_name_of_the_run_folder(tmp_path: Path):
    args = grpo_arguments(make_config({"trl": {"report_to": "trackio"}}), tmp_path / "seven")
    assert (args.report_to, args.run_name, args.project) == (["trackio"], "seven", "gar")
    assert grpo_arguments(make_config({"trl": {"run_name": "mine"}}), tmp_path / "seven").run_name == "mine"
    assert grpo_arguments(make_config({}), tmp_path / "seven").report_to == []
