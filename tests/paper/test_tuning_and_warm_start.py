"""The programs that made the tasks' models run."""

import json
import sys

import pytest
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from paper.analyses import tune_embedded_task
from paper.tasks import warm_start
from paper.tasks.chains import load_task

pytestmark = pytest.mark.paper


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
