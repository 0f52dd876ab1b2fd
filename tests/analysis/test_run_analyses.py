"""Analyses of the rollouts of a run, by hand."""

import pytest

from gar.analysis.card import model_card
from gar.analysis.summary import nothing_learned, render_summary, summarize, summary_texts
from gar.config import foreign_problems, make_config, parse_yaml
from gar.records import open_run
from tests.report.runs import make_run
from tests.support.runs import begun_run, write_evaluation


@pytest.mark.parametrize(("scored", "charged"), [(0.0, False), (0.25, True)])
def test_summary_shows_what_was_recorded_and_charges_a_share_where_there_is_a_signal(tmp_path, scored, charged):
    run = begun_run(tmp_path)
    run.append_metrics({"step": 1, "time/step_seconds": 0.5, "time/gar_seconds": 0.1, "gar/scored_fraction": scored})
    part = {"num_samples": 8, "problems": [], "pass_at": {"1": 0.625}}
    write_evaluation(run, "after", {"test": part})
    summary = summarize(open_run(run.path))
    texts = summary_texts(summary)
    assert (texts["test pass@1"], texts["seconds per step"]) == ("– → 0.625", "0.50")
    assert texts["GAR’s share"] == ("20.0%" if charged else "–")
    assert [*render_summary(summary).columns[1].cells] == [*texts.values()]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (
            {"gar/eligible_fraction": 0.0},
            "no response was right in any step. Likeliest cause: the problems are too hard",
        ),
        ({"gar/eligible_fraction": 0.0, "gar/truncated_fraction": 0.8}, "Raise --trl.max_completion_length."),
        ({"gar/eligible_fraction": 0.0, "gar/well_formatted_fraction": 0.2}, "most responses were badly formatted"),
        ({"gar/eligible_fraction": 1.0, "gar/zero_std_group_fraction_shaped": 1.0}, "all rewards were equal"),
        ({"gar/eligible_fraction": 0.1, "gar/zero_std_group_fraction_shaped": 0.9}, ""),
        ({"loss": 1.0}, ""),
    ],
)
def test_a_run_without_a_signal_says_so_with_the_likeliest_cause(tmp_path, metrics, said):
    run = begun_run(tmp_path)
    for step in (1, 2):
        run.append_metrics({"step": step} | metrics)
    note = nothing_learned(open_run(run.path))
    assert said in note if said else note == ""
    assert note.startswith("Nothing was learned: ") or not said


def test_a_run_of_the_embedded_model_on_problems_of_ones_own_names_the_model_as_the_cause(tmp_path):
    config = make_config({"data": {"source": "mine.jsonl"}}).model_dump(mode="json")
    run = begun_run(tmp_path, config=config)
    run.append_metrics({"step": 1, "gar/eligible_fraction": 0.0, "gar/empty_fraction": 1.0})
    assert nothing_learned(open_run(run.path)).endswith(f"cause: {foreign_problems(make_config(config))}.")


def test_the_model_card_names_base_settings_and_numbers_and_no_path_of_this_machine(tmp_path):
    run = open_run(make_run(tmp_path))
    data = tmp_path / "mine.jsonl"
    data.touch()
    values = {"model": {"path": "Qwen/Qwen3-0.6B"}, "data": {"source": str(data)}, "trl": {"max_steps": 6}}
    card = model_card(make_config(values), run, summarize(run))
    head, front, body = card.split("---\n", 2)
    assert (head, parse_yaml(front)["base_model"], "datasets" in parse_yaml(front)) == ("", "Qwen/Qwen3-0.6B", False)
    assert "on `mine.jsonl` for 6 steps" in body
    assert "\ntrl.max_steps: 6\n" in body
    assert "| test pass@1 | 0.312 → 0.750 |" in body
    assert str(tmp_path) not in card
