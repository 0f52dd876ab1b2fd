"""Studies and programs of paper/ run by their commands and write what they promise."""

import json
import shutil
import sys

import pytest
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from gar.models.embedded import embedded_path
from gar.records import RunFolder
from gar.records.checkpoints import seal_checkpoint
from paper.analyses import tune_embedded_task
from paper.analyses.ablation import main as ablation_main
from paper.analyses.policies import load_policy_of
from paper.analyses.sensitivity import main as sensitivity_main
from paper.tasks import warm_start
from paper.tasks.chains import load_task

pytestmark = pytest.mark.paper


def test_ablation_and_sensitivity_write_data_and_figure_of_committed_results(tmp_path, monkeypatch, capsys):
    for main, results in ((ablation_main, "main"), (sensitivity_main, "rate")):
        monkeypatch.setattr("sys.argv", ["study", results, "--out", str(tmp_path / results)])
        main()
        written = [*(tmp_path / results).iterdir()]
        assert {path.suffix for path in written} == {".parquet", ".svg", ".png"}
        printed = capsys.readouterr().out.replace("\n", "")
        assert all(str(path) in printed for path in written)


def test_policy_of_a_run_without_a_final_model_is_its_newest_whole_checkpoint(tmp_path):
    run = RunFolder.create(tmp_path, "run")
    config = {"data": {"template": "plain"}}
    run.write_run(seed=0, command=["gar", "train"], config=config, data_hash=None)
    for step in (2, 10, 12):
        shutil.copytree(embedded_path(), run.checkpoints / f"checkpoint-{step}")
        if step < 12:
            seal_checkpoint(run, step)
    assert "There is no final model: checkpoint-10 is used instead." in load_policy_of(str(run.path)).notes


def test_tuning_measures_the_base_model_and_a_seed(monkeypatch, capsys):
    few = {"train": 8, "test": 3, "harder": 3}
    monkeypatch.setattr(tune_embedded_task, "load_task", lambda task, split: load_task(task, split)[: few[split]])
    monkeypatch.setattr(sys, "argv", ["tune", "--seeds", "0", "--steps", "1"])
    monkeypatch.setattr(tune_embedded_task, "MAX_COMPLETION_TOKENS", 24)
    tune_embedded_task.main()
    lines = [line.partition("{") for line in capsys.readouterr().out.splitlines() if "{" in line]
    base, *_ = (json.loads("{" + line[2]) for line in lines)
    assert [line[0].strip() for line in lines][3:] == ["base judge", "seed 0"]
    assert 0 <= base["pass@1"] <= base["pass@4"] <= 1


def test_warm_start_saves_a_model_that_has_learned(tmp_path, monkeypatch, capsys):
    arguments = ["--model", "embedded", "--out", str(tmp_path), "--examples", "80", "--learning-rate", "1e-3"]
    monkeypatch.setattr(sys, "argv", ["warm_start", *arguments])
    warm_start.main()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step")]
    assert float(line.split()[-1]) > 0
    assert Qwen3ForCausalLM.from_pretrained(tmp_path).num_parameters() > 0
    assert len(PreTrainedTokenizerFast.from_pretrained(tmp_path)) < 100
