"""Studies and programs of paper/ by their commands, the cost model and groups by hand, means, captions."""

import io
import json
import shutil
import sys

import numpy as np
import pytest
from scipy import stats
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from gar import DataError
from gar.analysis import paper_figure
from gar.models.embedded import embedded_path
from gar.records import open_run
from gar.records.checkpoints import seal_checkpoint
from paper.analyses import tune_embedded_task
from paper.analyses.ablation import main as ablation_main
from paper.analyses.alignment import main as alignment_main
from paper.analyses.alignment import output as alignments
from paper.analyses.alignment import windows
from paper.analyses.cost import GroupShape, ModelShape, forward_operations, model_shape, signal_share, step_operations
from paper.analyses.cost import main as cost_main
from paper.analyses.intervals import mean_interval
from paper.analyses.outputs import add_caption
from paper.analyses.policies import load_policy_of
from paper.analyses.sensitivity import main as sensitivity_main
from paper.analyses.zero_std_groups import main as groups_main
from paper.analyses.zero_std_groups import output, zero_std_groups
from paper.tasks import warm_start
from paper.tasks.chains import load_task
from tests.report.runs import make_run
from tests.support.errors import raises
from tests.support.rows import rollout
from tests.support.runs import begun_run

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
    run = begun_run(tmp_path, config={"data": {"template": "plain"}})
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


def test_zero_std_groups_by_hand(tmp_path, monkeypatch, capsys):
    bonus = [rollout(1, 0, 0, bonus=0.1, reward=1.1), rollout(1, 0, 1)]
    equal = [rollout(1, 1, i) for i in range(2)]
    wrong = [rollout(2, 0, i, eligible=False, reward=0.0) for i in range(2)]
    mixed = [rollout(2, 3, 0), rollout(2, 3, 1, eligible=False, reward=0.0)]
    penalty = [rollout(2, 4, i, eligible=False, reward=-0.6 * i, penalty=-0.6 * i) for i in range(2)]
    run = make_run(tmp_path, rollouts={1: [*bonus, *equal], 2: [*wrong, *mixed, *penalty]})
    groups = zero_std_groups(open_run(run))
    assert groups.to_numpy().tolist() == [[i == j for j in range(3)] for i in (0, 1, 2, 3, 3)]
    monkeypatch.setattr(sys, "argv", ["zero_std_groups", str(run), "--out", str(tmp_path / "out")])
    groups_main()
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".parquet", ".svg", ".png"}
    assert "all correct, rescued" in capsys.readouterr().out
    with raises(DataError):
        output(open_run(make_run(tmp_path, "bare", rollouts={})))


def test_histograms_are_of_correct_responses_in_a_tenth_of_the_run_at_the_chosen_steps(tmp_path, monkeypatch, capsys):
    rows = {step: [rollout(step, 0, 0, alignment=step / 100)] for step in range(1, 21)}
    gated = rollout(19, 1, 0, eligible=False, verified=False, alignment=0.9, reward=0.0)
    run = make_run(tmp_path, steps=20, rollouts=rows | {19: [*rows[19], gated, rollout(19, 1, 1, alignment=None)]})
    assert windows([*range(1, 21)], ()) == [(1, 2), (7, 8), (13, 14), (19, 20)]
    monkeypatch.setattr(sys, "argv", ["alignment", str(run), "--steps", "2", "19", "--out", str(tmp_path / "out")])
    alignment_main()
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".parquet", ".svg", ".png"}
    assert alignments(open_run(run), (2, 19)).rows == [["2 to 3", 2, 0.025], ["19 to 20", 2, 0.195]]
    assert "19 to 20" in capsys.readouterr().out
    with raises(DataError):
        alignments(open_run(make_run(tmp_path, "bare", rollouts={})))


def test_mean_interval_is_students():
    values = [0.1, 0.4, 0.35, 0.8]
    found = mean_interval([*values, np.nan])
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose((found.low, found.high), expected)
    assert [str(mean_interval(few)) for few in ([np.nan], [0.6])] == ["-", "0.600"]


def test_a_caption_stays_inside_the_figure():
    name = "gar-grpo-" + "arithmetic" * 8  # a run may have a name of any length, without a space to break at
    with paper_figure(3, width=3.35) as figure:
        add_caption(figure, f"{name}, problem train-1234: n = 64 (64 fresh responses).\nA second line.")
    figure.savefig(io.BytesIO())  # lays the figure out
    box, page = figure._supxlabel.get_window_extent(), figure.bbox  # pyright: ignore
    assert page.x0 <= box.x0 <= box.x1 <= page.x1
    assert page.y0 <= box.y0
