"""The settings that the methods of the paper read, and their runs from the command line."""

import shutil
from pathlib import Path

import pytest

from gar.cli.main import main
from gar.config import make_config
from gar.records import RunFolder, open_run
from gar.records.evaluations import read_set
from gar.train.checks import check_before_loading
from gar.train.run import _unread
from tests.support.runs import assert_equal_runs

pytestmark = pytest.mark.paper


def test_settings_that_a_method_never_reads_are_named():
    for method, section, read, unread in (
        ("sft", "trl", {"learning_rate": 1e-4}, {"beta": 0.1, "loss_type": "dapo", "num_generations": 4}),
        ("sdft", "trl", {"num_iterations": 2}, {"epsilon": 0.1, "top_entropy_quantile": 0.5}),
        ("sdpo", "trl", {"temperature": 0.9}, {"epsilon": 0.1, "scale_rewards": "none"}),
        ("luffy", "trl", {"beta": 0.1}, {}),
        ("sdft", "sdft", {}, {"teacher_update_rate": 0.5, "distillation_topk": 5}),
        ("sdft", "sdft", {"distillation_mode": "topk_logits", "distillation_topk": 5}, {}),
        ("chord", "chord", {"peak": 0.5, "valley": 0.0, "decay": 1.0}, {}),
    ):
        config = make_config({"method": method, section: read | unread})
        check_before_loading(config)
        assert _unread(config) == [f"{section}.{name}" for name in unread], method


FAST = ["--preset", "bench", "--preflight.mode", "off", "--evaluate.sources", "test", "--evaluate.num_samples", "2"]
FAST += ["--evaluate.pass_at_k", "1", "--evaluate.max_problems", "2", "--data.max_problems", "64"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft-grpo", "rft", "chord", "sdpo"])  # each kind of trainer but the judge's
def test_a_run_from_the_command_line(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = ["--trl.max_steps", "2", "--trl.per_device_train_batch_size", "16", "--trl.num_iterations", "1"]
    arguments = ["train", *FAST, *small, "--plugin", "paper.methods", "--method", method]
    arguments += ["--trl.bf16", "true"] if method == "sft-grpo" else []  # its weights stay in float32
    assert main([*arguments, "--output_dir", str(tmp_path), "--records.name", "run"]) == 0
    folder = RunFolder.open(tmp_path / "run")
    assert folder.read_run().status == "finished"
    steps_with_rollouts = {"rft": [], "sft-grpo": [2]}.get(method, [1, 2])
    assert open_run(folder.path).steps == steps_with_rollouts
    assert [row["step"] for row in open_run(folder.path).metrics] == [1, 2]
    assert read_set(folder.path / "evaluation/after/test")["step"] == 2
    assert (folder.path / "model" / "model.safetensors").is_file()
    assert "plugins:\n- paper.methods" in (folder.path / "config.yaml").read_text()
    capsys.readouterr()
    if method == "chord":
        return
    whole = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "whole")))
    folder.update_run(status="interrupted")
    assert main(["train", "--resume", str(folder.path)]) == 0
    assert f"A run of {method} begins again: " in capsys.readouterr().out
    assert_equal_runs(folder, whole)
