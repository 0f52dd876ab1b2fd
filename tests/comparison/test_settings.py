"""What a comparison may say, what it means when it says little, and how it is rejected."""

import pytest

from gar.comparison.plan import planned_runs
from gar.comparison.settings import comparison_names, read_comparison
from gar.errors import ConfigError


def refusal(plan, **changes) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(**changes)
    return str(caught.value)


@pytest.mark.parametrize("name", comparison_names())
def test_every_comparison_that_ships_can_be_planned(name):
    comparison = read_comparison(name)
    planned = planned_runs(comparison, name)
    assert comparison.name == name
    assert len(planned) == len(comparison.runs) * len(comparison.seeds)


def test_a_row_is_a_method_or_a_mapping(plan):
    rows = [
        "grpo",
        {"method": "gar-grpo"},
        {"label": "half", "method": "gar-grpo", "settings": {"reward": {"bonus_weight": 1}}},
    ]
    comparison, _ = plan(runs=rows)
    assert [(row.label, row.method) for row in comparison.runs] == [
        ("grpo", "grpo"), ("gar-grpo", "gar-grpo"), ("half", "gar-grpo"),
    ]  # fmt: skip


def test_a_row_stands_against_the_first_unless_it_says_otherwise(plan):
    half = {"label": "half", "method": "gar-grpo"}
    comparison, _ = plan(runs=["grpo", "gar-grpo", half | {"against": ["grpo", "gar-grpo"]}])
    assert [comparison.against(row) for row in comparison.runs] == [(), ("grpo",), ("grpo", "gar-grpo")]
    comparison, _ = plan(runs=["grpo", "gar-grpo", half | {"against": []}])
    assert comparison.against(comparison.runs[2]) == ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"runs": ["grpo", "gar-gpro"]}, "tiny.yaml: runs.1.method: unknown method. Did you mean 'gar-grpo'?, got"),
        ({"runs": ["grpo", "grpo"]}, "label 'grpo' appears twice"),
        ({"seeds": [1, 2, 1]}, "seed 1 appears twice"),
        ({"runs": []}, "runs: Tuple should have at least 1 item"),
        ({"seeds": [-1]}, "seeds.0 must be greater than or equal to 0, got -1"),
        ({"sedes": [1]}, "unknown key 'sedes'. Did you mean 'seeds'?"),
        ({"runs": [{"method": "grpo", "setings": {}}]}, "unknown key 'runs.0.setings'. Did you mean 'settings'?"),
        ({"runs": [{"label": "a/b", "method": "grpo"}]}, "runs.0.label: String should match pattern"),
        (
            {"runs": ["grpo", {"method": "gar-grpo", "against": "grp"}]},
            "tested against 'grp': Did you mean 'grpo'?",
        ),
        ({"runs": [{"method": "grpo", "against": "grpo"}]}, "is to be tested against 'grpo': that is the row itself"),
        ({"workers": 0}, "workers must be greater than or equal to 1, got 0"),
    ],
)
def test_read_comparison_refuses_and_says_why(plan, changes, text):
    assert text in refusal(plan, **changes)


def test_read_comparison_suggests_the_nearest_that_ships():
    with pytest.raises(ConfigError, match=r"^demmo: no such file\. Did you mean 'demo'\?$"):
        read_comparison("demmo")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("name: c\nruns: [grpo]\n", r"c\.yaml: base is missing\.\n.*c\.yaml: seeds is missing\."),
        ("- grpo\n", "expected a mapping with name, base, runs and seeds, got list"),
    ],
)
def test_read_comparison_names_what_is_missing_or_no_mapping(tmp_path, content, text):
    (tmp_path / "c.yaml").write_text(content)
    with pytest.raises(ConfigError, match=text):
        read_comparison(str(tmp_path / "c.yaml"))
