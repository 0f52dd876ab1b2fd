"""The settings of a comparison: their order, and errors before a run starts."""

from pathlib import Path

from gar.comparison.plan import planned_runs, read_comparison
from gar.config import make_config, read_preset, with_template
from gar.errors import ConfigError
from gar.records import canonical_hash
from tests.support.errors import raises

HALF = {"method": "gar-grpo", "label": "half"}


def test_rows_are_methods_or_mappings_and_stand_against_the_first_unless_they_say_otherwise(plan):
    comparison, planned = plan(runs=["grpo", {"method": "gar-grpo"}, HALF | {"against": ["grpo", "gar-grpo"]}])
    assert [(row.label, row.method, comparison.against(row)) for row in comparison.runs] == [
        ("grpo", "grpo", ()), ("gar-grpo", "gar-grpo", ("grpo",)), ("half", "gar-grpo", ("grpo", "gar-grpo")),
    ]  # fmt: skip
    assert [run.title for run in planned[:4]] == ["grpo, seed 0", "gar-grpo, seed 0", "half, seed 0", "grpo, seed 1"]
    first, second = planned[0].settings, planned[1].settings
    assert {name for name in first if first[name] != second[name]} == {"method"}
    comparison, _ = plan(runs=["grpo", HALF | {"against": []}])
    assert comparison.against(comparison.runs[1]) == ()


def test_a_row_goes_over_the_comparison_and_that_over_the_base(plan):
    row = {"method": "gar-grpo", "settings": {"reward": {"bonus_weight": 0.25}, "model": {"path": "other"}}}
    _, planned = plan(
        settings={"reward": {"bonus_weight": 2.0, "correct_reward": 3.0}, "trl": {"num_iterations": 2}},
        runs=["grpo", row],
    )
    grpo, gar = planned[0].config, planned[1].config
    assert (grpo.reward.bonus_weight, gar.reward.bonus_weight, gar.reward.correct_reward) == (2.0, 0.25, 3.0)
    assert gar.trl == {"max_steps": 4, "num_iterations": 2}
    assert gar.evaluate.num_samples == 4
    # The template is decided, as `gar train` decides it. Otherwise no killed run could be resumed.
    assert grpo.data.template == "plain"
    assert all(run.config == with_template(run.config) for run in planned)


def test_equal_cells_of_two_comparisons_have_one_folder(plan):
    _, planned = plan(seeds=[0])
    assert planned[1].folder == Path(f"runs/compare/gar-grpo-seed-0-{canonical_hash(planned[1].settings)[:12]}")
    assert planned[1].config_path == Path(f"{planned[1].folder}.yaml")
    _, others = plan(name="other", seeds=[0], runs=["gar-grpo", {"label": "mine", "method": "grpo"}])
    assert [run.folder for run in others] == [run.folder for run in reversed(planned)]
    _, (changed,) = plan(seeds=[0], runs=["grpo"], settings={"trl": {"learning_rate": 1e-4}})
    assert changed.folder != planned[0].folder


def test_base_is_a_preset_a_file_beside_the_comparison_or_a_mapping(plan):
    assert len(planned_runs(read_comparison("demo"), "demo")) == 6
    _, planned = plan(base="bench")
    assert planned[0].config.trl == make_config(read_preset("bench")).trl
    Path("mine.yaml").write_text("evaluate: {sources: [harder]}\nrecords: {output_dir: big/disk}\n")
    _, planned = plan(base="mine.yaml")
    assert planned[0].config.evaluate.sources == ("harder",)
    assert planned[0].folder.parent == Path("big/disk/compare")


def test_a_wrong_comparison_is_an_error_that_says_where(plan):
    for changes, text in (
        ({"runs": ["grpo", "gar-gpro"]}, "tiny.yaml: run 'gar-gpro': method: Input should be 'grpo', "),
        ({"runs": ["grpo", "grpo"]}, "label 'grpo' appears twice"),
        ({"seeds": [1, 2, 1]}, "seed 1 appears twice"),
        ({"sedes": [1]}, "unknown key 'sedes'. Did you mean 'seeds'?"),
        ({"runs": [{"method": "grpo", "setings": {}}]}, "unknown key 'runs.0.setings'. Did you mean 'settings'?"),
        ({"runs": [{"label": "a/b", "method": "grpo"}]}, "runs.0.label: String should match pattern"),
        ({"runs": ["grpo", HALF | {"against": "grp"}]}, "tested against 'grp'. Did you mean 'grpo'?"),
        ({"runs": [{"method": "grpo", "against": "grpo"}]}, "cannot be tested against 'grpo'. That is the row itself."),
        ({"base": "bensh"}, "tiny.yaml: base is bensh, expected a file beside this one, or one of the presets bench, "),
        ({"base": {"evaluate": {"sources": []}}}, "run 'grpo': evaluate.sources is empty"),
        ({"settings": {"seed": 1}}, "tiny.yaml: settings.seed is decided by"),
        ({"settings": {"reward": {"bonus_wait": 1}}}, "run 'grpo': unknown key 'reward.bonus_wait'. Did you mean"),
        ({"base": {"records": 3}}, "run 'grpo': records: expected a section, records: {SETTING: VALUE}, got 3"),
    ):
        with raises(ConfigError, None, text):
            plan(**changes)


def test_a_file_that_is_no_comparison_is_an_error(tmp_path):
    path = tmp_path / "a.yaml"
    for content, text in (
        (None, "demmo: cannot read the configuration"),
        ("name: c\nruns: [grpo]\n", "seeds is missing."),
        ("- grpo\n", "expected a mapping with name, base, runs and seeds, got list"),
    ):
        path.write_text(content or "")
        with raises(ConfigError, None, text):
            read_comparison(str(path) if content else "demmo")
