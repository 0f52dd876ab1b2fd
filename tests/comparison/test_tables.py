"""Tables against numbers worked out by hand. Runs that are missing or not paired."""

import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from gar.comparison.compare import Comparison
from gar.comparison.result import check_paired, finished_results
from gar.comparison.tables import comparison_tables, result_notes
from gar.errors import RecordError
from tests.comparison.finished import result
from tests.support.errors import raises

# Right responses of 4 to two problems, by seed.
COUNTS = {"grpo": [[0, 2], [1, 1], [2, 2]], "gar-grpo": [[1, 3], [1, 2], [3, 4]]}
AGAINST = {"grpo": [], "gar-grpo": ["grpo"]}


@pytest.fixture
def made(plan):
    """The results of two rows and three seeds."""
    _, planned = plan()
    for run in planned:
        other = run.label != "grpo"
        result(
            run,
            {"test": COUNTS[run.label][run.seed]},
            step_seconds=0.6 if other else 0.5,
            peak_memory_bytes=(500 + 50 * other + 10 * run.seed) * 2**20,
        )
    return finished_results(planned)


def tables(results):
    """Rows of scores, differences and costs, each by heading."""
    made = comparison_tables(results, against=AGAINST, seeds=[0, 1, 2], ks=[1, 4])
    return [table.to_dict("records") for table in made.values()]


def test_scores_and_differences_by_hand(made):
    scores, differences, _ = tables(made)
    # pass@1 by seed: 2/8, 2/8, 4/8; squares (1/12)^2 twice and (1/6)^2, over 2
    assert scores[0] == {
        "method": "grpo", "seeds": "3 of 3", "test pass@1": f"0.333 ± {(1 / 48) ** 0.5:.3f}",
        "test pass@4": "0.833 ± 0.289",  # of 4 samples: whether any is right
    }  # fmt: skip
    assert scores[1]["test pass@1"] == "0.583 ± 0.260 (+75.0%)"
    # 4/8 - 2/8, 3/8 - 2/8, 7/8 - 4/8
    p = f"{2 * stats.t.sf(0.25 / (0.125 / 3**0.5), 2):.3f}"
    shown = {
        "on": "test pass@1", "method": "gar-grpo", "against": "grpo", "seeds": 3, "difference": "+0.250",
        "relative": "+75.0%", "t-test p": p, "permutation p": "0.250", "Holm p": p, "verdict": "no difference shown",
    }  # fmt: skip
    assert differences[0].items() >= shown.items()


def test_costs_are_told_against_the_first_row_of_the_same_seed_without_resumed_runs(made):
    cost = tables(made)[2][1]
    assert cost == {
        "method": "gar-grpo", "seeds": 3, "step": "0.600", "generation": "0.300", "update": "0.300",
        "step against grpo": "1.20 (1.20 to 1.20)", "peak memory": "560 MiB",
        "memory against grpo": "1.10 (1.10 to 1.10)",
    }  # fmt: skip
    made["gar-grpo", 0] = replace(made["gar-grpo", 0], resumed=True)
    assert tables(made)[2][1]["seeds"] == 2
    assert "Interrupted and resumed, so without a cost: gar-grpo seed 0." in result_notes(made)


@pytest.mark.slow
@pytest.mark.usefixtures("made")
def test_report_writes_tables_and_curves_and_fills_in_nothing(capsys, monkeypatch):
    comparison = Comparison("tiny.yaml")
    assert comparison.report()
    folder = Path("results/tiny")
    assert sorted(path.name for path in folder.iterdir()) == ["curves.png", "curves.svg", "table.md"]
    assert "| gar-grpo | 3 of 3 | 0.583 ± 0.260 (+75.0%) |" in (folder / "table.md").read_text()
    out = capsys.readouterr().out
    assert "no difference shown" in out
    assert "| gar-grpo |" in out
    with monkeypatch.context() as terminal:
        terminal.setattr(sys.stdout, "isatty", lambda: True)
        assert Comparison("tiny.yaml").report()
    out = capsys.readouterr().out
    assert "┃" in out
    assert "| gar-grpo |" not in out
    for run in comparison.cells[1::2]:  # gar-grpo
        shutil.rmtree(run.folder)
    assert not comparison.report()
    text = (folder / "table.md").read_text()
    assert "| gar-grpo | not run | - | - |" in text
    assert "verdict" not in text


def test_notes_tell_of_mixed_versions_and_machines(made):
    other = made["grpo", 2]
    made["grpo", 2] = replace(other, versions={**other.versions, "torch": "0.1"}, platform="abacus")
    notes = result_notes(made)
    assert any(note.startswith("The runs come from different versions of torch: 0.1, ") for note in notes)
    assert "6 runs of 60 s each (50 s of processor time, medians), 0.10 hours in sum" in notes[-1]
    assert " and abacus, " in notes[-1]


def test_notes_count_responses_that_were_not_graded(made):
    other = made["grpo", 2]
    part = replace(other.sets["test"], status_counts={"ok": 5, "timeout": 2, "error": 1})
    made["grpo", 2] = replace(other, sets={"test": part})
    notes = [note for note in result_notes(made) if "not graded" in note]
    assert notes == ["grpo seed 2: 3 of 8 responses on test were not graded (timeout or error) and count as wrong."]


def test_check_paired_rejects_other_problems_and_leaves_out_what_is_unknown(made):
    check_paired({key: replace(value, prompts_hash=f"of seed {key[1]}") for key, value in made.items()})
    first = made["gar-grpo", 1]
    sets = {
        name: {"test": replace(first.sets["test"], **{name: value})}
        for name, value in (
            ("num_samples", 8),
            ("problems", first.sets["test"].problems[::-1]),
            ("problems_hash", "other"),
        )
    }
    unknown = {"test": replace(first.sets["test"], problems_hash=None)}
    for change, code in (
        ({"prompts_hash": "other"}, "other-prompts"),
        ({"data_hash": "other"}, "other-data"),
        *(({"sets": other}, "other-evaluation") for other in ({}, *sets.values())),
        ({"prompts_hash": ""}, None),
        ({"data_hash": None}, None),
        ({"data_hash": "other", "versions": {}}, None),
        ({"sets": unknown}, None),
    ):
        with raises(RecordError, code) if code else nullcontext():
            check_paired(made | {("gar-grpo", 1): replace(first, **change)})
