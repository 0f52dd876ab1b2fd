"""Studies and programs of paper/ by their commands, and the cost model against hand counts."""

import json
import shutil
import sys

import pytest
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from gar.models.embedded import embedded_path
from gar.records import RunFolder
from gar.records.checkpoints import seal_checkpoint
from paper.analyses import tune_embedded_task
from paper.analyses.cost import GroupShape, ModelShape, forward_operations, model_shape, signal_share, step_operations
from paper.analyses.cost import main as cost_main
from paper.analyses.policies import load_policy_of
from paper.analyses.sensitivity import main as sensitivity_main
from paper.tasks import warm_start
from paper.tasks.chains import load_task

pytestmark = pytest.mark.paper


def test_sensitivity_writes_data_and_figure_of_committed_results(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["study", "rate", "--out", str(tmp_path)])
    sensitivity_main()
    written = [*tmp_path.iterdir()]
    assert {path.suffix for path in written} == {".parquet", ".svg", ".png"}
    printed = capsys.readouterr().out.replace("\n", "")
    assert all(str(path) in printed for path in written)


def test_policy_of_a_run_without_a_final_model_is_its_newest_whole_checkpoint(tmp_path):
    run = RunFolder.create(tmp_path, "run")
    run.write_run(seed=0, command=["gar"], config={"data": {"template": "plain"}}, data_hash=None)
    for step in (2, 10, 12):
        shutil.copytree(embedded_path(), run.checkpoints / f"checkpoint-{step}")
        if step < 12:
            seal_checkpoint(run, step)
    assert "There is no final model: checkpoint-10 is used instead." in load_policy_of(str(run.path)).notes


@pytest.mark.slow
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


@pytest.mark.slow
def test_warm_start_saves_a_model_that_has_learned(tmp_path, monkeypatch, capsys):
    arguments = ["--model", "embedded", "--out", str(tmp_path), "--examples", "80", "--learning-rate", "1e-3"]
    monkeypatch.setattr(sys, "argv", ["warm_start", *arguments])
    warm_start.main()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step")]
    assert float(line.split()[-1]) > 0
    assert Qwen3ForCausalLM.from_pretrained(tmp_path).num_parameters() > 0
    assert len(PreTrainedTokenizerFast.from_pretrained(tmp_path)) < 100


def test_operations_by_hand():
    tiny = ModelShape(body_parameters=1000, layers=2, attention_width=8, hidden=4, vocab=50)
    # 2 * 1000 * 10 through the body, 2 * 8 * 2 layers * 10^2 in causal attention, 2 * 4 * 50 * 3 in the head.
    assert forward_operations(tiny, 10, 3) == 20_000 + 3_200 + 1_200
    group = GroupShape(responses=4, prompt_tokens=2, response_tokens=8, updates=2)
    # A log-prob pass, then two updates of forward, the same again for the activations, and twice as much backward.
    assert step_operations(tiny, group) == 4 * (1 + 2 * 4) * forward_operations(tiny, 10, 8)
    without = group._replace(log_prob_pass=False, checkpointing=False, updates=1)
    assert step_operations(tiny, without) == 4 * 3 * forward_operations(tiny, 10, 8)


def test_signal_share_and_printed_cost_of_qwen3(capsys):
    # Worked out once by hand for K 16, prompt 200, span 768, 40% correct, one anchor of 400, with checkpointing.
    share = signal_share(model_shape("Qwen/Qwen3-8B"), GroupShape(response_tokens=1024), "captured")
    assert 100 * share == pytest.approx(1.45, abs=0.006)
    cost_main(["--model", "Qwen/Qwen3-8B", "--tokens", "8192", "--gpus", "8"])
    printed = capsys.readouterr().out
    assert "Training state: 131 GB" in printed
    assert "without generation: 472 s" in printed
    assert "captured      0.18%  0.867" in printed
