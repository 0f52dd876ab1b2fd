"""From rows and seeds to configurations: what goes over what, in which order, what is rejected before it costs time."""

from pathlib import Path

import pytest

from gar.config import make_config, read_preset, with_template
from gar.errors import ConfigError
from gar.records import canonical_hash


def test_planned_runs_go_seed_by_seed(plan):
    _, planned = plan()
    assert [run.title for run in planned] == [
        f"{label}, seed {seed}" for seed in (0, 1, 2) for label in ("grpo", "gar-grpo")
    ]


def test_planned_runs_differ_in_method_and_records_alone(plan):
    _, planned = plan()
    first, second = planned[0].settings, planned[1].settings
    assert {name for name in first if first[name] != second[name]} == {"method"}
    assert "records" not in first


def test_planned_run_puts_the_row_over_the_comparison_over_the_base(plan):
    row = {"method": "gar-grpo", "settings": {"reward": {"bonus_weight": 0.25}}}
    _, planned = plan(
        settings={"reward": {"bonus_weight": 2.0, "correct_reward": 3.0}, "trl": {"num_iterations": 2}},
        runs=["grpo", row],
    )
    grpo, gar = planned[0].config, planned[1].config
    assert (grpo.reward.bonus_weight, gar.reward.bonus_weight, gar.reward.correct_reward) == (2.0, 0.25, 3.0)
    assert gar.trl == {"max_steps": 4, "num_iterations": 2}
    assert gar.evaluate.num_samples == 4


def test_planned_run_has_the_template_that_its_run_folder_will_hold(plan):
    """`gar train` writes down what auto stands for; if the plan said otherwise, no killed run would go on."""
    base = {"evaluate": {"sources": ["test"], "num_samples": 4, "pass_at_k": [1]}}
    _, planned = plan(base=base, runs=["grpo", {"method": "gar-grpo", "settings": {"model": {"path": "other"}}}])
    assert planned[0].config.data.template == "plain"
    assert all(run.config == with_template(run.config) for run in planned)


def test_planned_run_knows_where_everything_goes(plan):
    _, planned = plan(base="bench", settings={}, results="elsewhere")
    run = planned[3]
    digits = canonical_hash(run.settings)[:12]
    assert run.folder == Path(f"runs/compare/gar-grpo-seed-1-{digits}")
    assert run.config_path == Path(f"runs/compare/gar-grpo-seed-1-{digits}.yaml")


def test_equal_cells_of_two_comparisons_have_one_folder(plan):
    _, planned = plan(seeds=[0])
    _, others = plan(name="other", seeds=[0], runs=["gar-grpo", {"label": "mine", "method": "grpo"}])
    assert [run.folder for run in others] == [run.folder for run in reversed(planned)]
    _, (changed,) = plan(seeds=[0], runs=["grpo"], settings={"trl": {"learning_rate": 1e-4}})
    assert changed.folder != planned[0].folder


def test_base_is_a_preset_a_file_beside_the_comparison_or_a_mapping(plan, tmp_path, monkeypatch):
    _, planned = plan(base="bench")
    assert planned[0].config.trl == make_config(read_preset("bench")).trl
    Path("mine.yaml").write_text("evaluate: {sources: [harder]}\nrecords: {output_dir: big/disk}\n")
    _, planned = plan(base="mine.yaml")
    assert planned[0].config.evaluate.sources == ("harder",)
    assert planned[0].folder.parent == Path("big/disk/compare")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"base": "bensh"}, r"tiny.yaml: base: there is no file bensh and no preset 'bensh', only bench, "),
        ({"base": {"evaluate": {"sources": []}}}, r"run 'grpo': evaluate.sources is empty"),
        ({"settings": {"evaluate": {"pass_at_k": [8]}}}, r"pass@8, which needs as many samples.*num_samples is 4"),
        ({"settings": {"seed": 1}}, r"tiny.yaml: settings.seed is decided by seeds; leave it out"),
        ({"runs": [{"method": "grpo", "settings": {"method": "gar-grpo"}}]}, r"run 'grpo': settings.method is decided"),
        (
            {"settings": {"reward": {"bonus_wait": 1}}},
            r"run 'grpo': unknown key 'reward.bonus_wait'. Did you mean 'bonus_weight'\?",
        ),
        ({"base": {"records": 3}}, r"base.records: expected a mapping of settings, got int"),
    ],
)
def test_planned_runs_refuse_and_say_where(plan, changes, text):
    with pytest.raises(ConfigError, match=text):
        plan(**changes)
