"""What the methods of the paper read of a run's settings, and their runs from the command line."""

from pathlib import Path
from typing import Any

import pytest

from gar.cli.main import main
from gar.config import make_config
from gar.errors import DataError
from gar.records import RunFolder, open_run
from gar.train.checks import check_before_loading
from gar.train.run import _unread

pytestmark = pytest.mark.paper


@pytest.mark.parametrize(
    ("method", "values", "unread"),
    [
        ("sft", {"beta": 0.1, "loss_type": "dapo", "epsilon": 0.1, "num_iterations": 2}, "all"),
        ("sft", {"scale_rewards": "none", "num_generations": 4, "steps_per_generation": 2}, "all"),
        ("sft", {"learning_rate": 1e-4, "temperature": 0.9, "max_completion_length": 32}, "none"),
        ("sdft", {"epsilon": 0.1, "vllm_gpu_memory_utilization": 0.5, "top_entropy_quantile": 0.5}, "all"),
        ("sdft", {"learning_rate": 1e-4, "num_iterations": 2, "temperature": 0.9}, "none"),
        ("sdpo", {"epsilon": 0.1, "loss_type": "grpo", "scale_rewards": "none"}, "all"),
        ("luffy", {"beta": 0.1}, "none"),
        ("gar-grpo", {"beta": 0.1}, "none"),
    ],
)
def test_fields_that_a_method_never_reads_are_named(method: str, values: dict[str, Any], unread: str):
    config = make_config({"method": method, "trl": values})
    check_before_loading(config)
    assert _unread(config) == [f"trl.{name}" for name in values if unread == "all"]


def test_settings_that_a_method_without_responses_never_reads_are_named():
    values = {"reward": {"correct_reward": 2.0}, "advantage": {"min_std": 0.1}, "watchdog": {"steps": 3}}
    config = make_config({"method": "sft", "preflight": {"mode": "off"}, "trl": {"temperature": 0.9}, **values})
    assert _unread(config) == ["reward.correct_reward", "advantage.min_std", "watchdog.steps", "trl.temperature"]


@pytest.mark.parametrize(
    ("method", "values", "unread"),
    [
        ("sdft", {"teacher_update_rate": 0.5, "teacher_sync_steps": 2, "distillation_topk": 5}, "all"),
        ("sdft", {"teacher_model_kind": "ema", "teacher_update_rate": 0.5}, "none"),
        ("sdft", {"distillation_mode": "topk_logits", "distillation_topk": 5}, "none"),
        ("sdpo", {"distillation_topk": 5}, "all"),
        ("sdpo", {"teacher_update_rate": 0.5, "distillation_weight": 0.5}, "none"),
        ("grad2reward", {"temperature": 2.0}, "none"),
        ("chord", {"peak": 0.5, "valley": 0.0, "decay": 1.0}, "none"),
        ("rft", {"num_samples": 2}, "none"),
    ],
)
def test_settings_of_a_methods_section_that_it_never_reads_are_named(method: str, values: dict, unread: str):
    config = make_config({"method": method, method: values})
    assert _unread(config) == [f"{method}.{name}" for name in values if unread == "all"]
    assert _unread(make_config({"method": "luffy", method: values})) == [f"{method}.{name}" for name in values]


FAST = ["--preset", "bench", "--preflight.mode", "off", "--evaluate.sources", "test", "--evaluate.num_samples", "2"]
FAST += [
    "--evaluate.pass_at_k",
    "1",
    "--evaluate.max_problems",
    "2",
    "--trl.max_steps",
    "2",
    "--data.max_problems",
    "64",
]


@pytest.mark.parametrize("method", ["sft", "sft-grpo", "rft", "luffy", "chord", "sdft", "sdpo", "grad2reward"])
def test_a_run_from_the_command_line(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = ["--trl.per_device_train_batch_size", "16", "--trl.num_iterations", "1"]
    arguments = ["train", *FAST, *small, "--plugin", "paper.methods", "--method", method]
    arguments += ["--trl.bf16", "true"] if method == "sft-grpo" else []  # its weights stay in float32
    assert main([*arguments, "--output_dir", str(tmp_path), "--records.name", "run"]) == 0
    folder = RunFolder.open(tmp_path / "run")
    assert folder.read_run().status == "finished"
    steps_with_rollouts = {"sft": [], "rft": [], "sft-grpo": [2]}.get(method, [1, 2])
    assert open_run(folder.path).steps == steps_with_rollouts
    assert [row["step"] for row in open_run(folder.path).metrics] == [1, 2]
    assert open_run(folder.path).read_json("evaluation/after.json")["step"] == 2
    assert (folder.path / "model" / "model.safetensors").is_file()
    assert "plugins:\n- paper.methods" in (folder.path / "config.yaml").read_text()
    capsys.readouterr()
    if method in ("luffy", "chord", "grad2reward"):
        return
    folder.update_run(status="interrupted")
    assert main(["train", "--resume", str(folder.path)]) == 1
    assert f"a run of {method} cannot be resumed: " in capsys.readouterr().err


def test_a_method_that_needs_solutions_says_so_before_anything_is_loaded(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text('{"question": "3+4", "answer": "7"}\n' * 8)
    data = {"source": str(tmp_path / "rows.jsonl"), "prompt_field": "question", "answer_field": "answer"}
    with pytest.raises(DataError, match="expert solution"):
        check_before_loading(make_config({"method": "luffy", "data": data}))
