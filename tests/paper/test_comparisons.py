"""Comparisons: committed results, their tables, and the forms and tests of the shorthand experts."""

import re
import shutil
from dataclasses import replace

import pytest

from gar import RecordError
from gar.comparison import RunResult, read_comparison
from gar.data.arithmetic import load_arithmetic
from gar.records import EvaluatedSet, ProblemCount
from paper.comparisons import budget, results, shorthand
from paper.comparisons.__main__ import main, tables
from paper.comparisons.results import GONE, HERE, MARK, NAMES, Committed, collect, read_results, write_results
from paper.comparisons.shorthand import IMITATION, MODELS, OWN, TESTED_FORMS, kind_of, verdicts
from paper.comparisons.tuning import chosen_rows, curves
from paper.tasks.chains import TASKS, write_solution
from paper.tasks.shorthand import shortened
from tests.support.errors import raises

pytestmark = pytest.mark.paper
UNFINISHED = ("shorthand", "tuning", "word-compete")  # runs go on


@pytest.fixture(scope="module")
def all_results():
    return {name: read_results(name) for name in NAMES}


def test_every_comparison_has_results_for_its_rows_and_seeds(all_results):
    finished = {name: found for name, found in all_results.items() if not name.startswith(UNFINISHED)}
    for name, committed in finished.items():
        settings = read_comparison(str(HERE / f"{name}.yaml"))
        planned = {(row.label, seed) for row in settings.runs for seed in settings.seeds}
        rest = committed.results.keys() - planned
        assert planned <= committed.results.keys()
        assert {label for label, _ in rest} == GONE.get(name, {}).keys()
        assert {row.label: [*settings.against(row)] for row in settings.runs}.items() <= committed.against.items()


@pytest.mark.slow
def test_commands_print_tables_and_draw(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["paper.comparisons", "word-methods", "--figures", str(tmp_path)])
    main()
    assert "| expert-steps | 2 of 2 |" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "curves.svg"}


def test_collect_puts_new_results_beside_the_old_and_keeps_gone_rows(all_results, tmp_path, monkeypatch):
    committed = all_results["rate"]
    monkeypatch.setattr(results, "FILE", shutil.copy(results.FILE, tmp_path))
    monkeypatch.setattr(results, "GONE", {"rate": {"rate-1e-4": "abc1234"}})
    write_results(committed)
    assert read_results("rate") == committed
    new = replace(committed.results["rate-1e-3", 100], wall_seconds=1.0)
    collect("rate", [new], {"rate-1e-3-seed-100": {"words": 0.5}})
    read = read_results("rate")
    assert read.results == committed.results | {("rate-1e-3", 100): new}
    assert read.measured == committed.measured | {"rate-1e-3-seed-100": {"words": 0.5}}
    assert f"| rate-1e-4 {MARK} | 3 of 3 |" in tables(read)
    with raises(RecordError):
        collect("rate", [replace(new, prompts_hash="shorter")], {})
    assert read_results("rate") == read


# Experts who write in shorthand.


@pytest.mark.parametrize(
    ("form", "solution"),
    [
        ("full", "[ * 4 2 = 8 ; - 8 5 = 3 ; + 3 9 = 2 ]"),
        ("half", "[ * 4 2 ; - 8 5 ; + 3 9 = 2 ]"),
        ("half", "ok 4 times 2 then 8 minus 5 then 3 plus 9 is 2 so"),
        ("shorthand", "[ * 4 2 ; - 5 ; + 9 = 2 ]"),
        ("shorthand", "[ 4 * 2 ; - 5 ; + 9 = 2 ]"),
        ("shorthand", "ok 4 times 2 then minus 5 then plus 9 is 2 so"),
    ],
)
def test_shortened_leaves_out_what_its_form_says(form, solution):
    problem = replace(load_arithmetic("train")[0], prompt="4*2-5+9=", answer="2")
    wording = "words" if solution.startswith("ok") else "symbols"
    method = "prefix" if solution.startswith("[ *") else "stepwise"
    text = shortened(write_solution(problem, method, wording), form)
    assert text == f"<think> {solution} </think> <answer> 2 </answer>"
    task = TASKS["which-way"] if method == "prefix" else TASKS["arithmetic"]
    assert kind_of(text, "4*2-5+9=", task) == ("expert" if form == "full" else form)
    assert kind_of(text.replace("2", "7"), "4*2-5+9=", task) != "other"  # a wrong value is no other form


@pytest.mark.parametrize("model", MODELS)
def test_rows_of_imitation_are_those_that_the_tuning_chose(model):
    rows = chosen_rows(model, curves(read_results(f"tuning-imitation-{model}")))
    assert set(rows) <= set((HERE / f"shorthand-{model}.yaml").read_text().splitlines())


def result_of(like: RunResult, label: str, seed: int, score: float) -> RunResult:
    counts = EvaluatedSet(
        pass_at={"1": score}, num_samples=1000, problems=[ProblemCount(id="p", num_correct=round(1000 * score))]
    )
    return replace(like, label=label, seed=seed, sets={"test": counts})


@pytest.mark.parametrize(("best_imitation", "expected"), [(0.50, "refuted"), (0.20, "shown"), (0.30, "open")])
def test_claim_b_is_against_the_strongest_of_four_rows(best_imitation, expected):
    like = next(iter(read_results("rate").results.values()))
    scores = {"grpo": 0.2, OWN: best_imitation}
    for form in TESTED_FORMS:
        scores |= {f"gar-{form}": 0.3, f"shuffled-{form}": 0.1, **{f"{name}-{form}": 0.1 for name in IMITATION}}
    noise = {seed: 0.002 * (seed % 3) for seed in range(10)}
    results = {
        (label, seed): result_of(like, label, seed, score + (noise[seed] if label == OWN else 0.001 * (seed % 2)))
        for label, score in scores.items()
        for seed in range(10)
    }
    results[OWN, 0] = result_of(like, OWN, 0, best_imitation - 0.002)
    committed = Committed(name="", results=results, against=dict.fromkeys(scores, ()), measured={})
    found = verdicts(dict.fromkeys(shorthand.MODELS, committed))
    assert len(found) == 12
    claim = found["B", "chain", "half"]
    assert claim.other == (OWN if best_imitation > 0.15 else "sft-half")
    assert claim.text.endswith(f"10 seeds: {expected}")
    assert found["A", "chain", "half"].text.endswith("shown")
    missing = replace(committed, results={key: result for key, result in results.items() if key[0] != "sft-half"})
    assert not verdicts(dict.fromkeys(shorthand.MODELS, missing))  # no seed is complete


def test_steps_to_an_accuracy_are_of_the_last_ten_steps():
    measured = {"correct": [0.0] * 10 + [1.0] * 10 + [0.5] * 5}
    assert budget.accuracies(measured)[[0, 5, 10, -1]].tolist() == pytest.approx([0.0, 0.5, 1.0, 0.75])
    assert [budget.steps_to(measured, level) for level in (0.0, 0.1, 0.8, 1.0, 1.1)] == [10, 11, 18, 20, 25]


def test_every_number_of_the_budget_page_is_in_the_results():
    page = (HERE / "budget.md").read_text()
    cells = {
        value
        for name in budget.COMPARISONS
        for row in budget.row_table(read_results(name)).astype(str).to_numpy().tolist()
        for value in row
    }
    lines = [line for line in page.partition("## Results")[2].splitlines() if line.startswith("|") and "±" in line]
    assert len(lines) == 6
    for line in lines:
        for value in [cell.strip() for cell in line.strip("|").split("|")][3:]:
            assert value in cells, value
    for name in budget.COMPARISONS:
        for row in budget.predictions(read_results(name)).to_dict("records"):
            assert row["interval"] in page
            assert row["outcome"] == {"P1": "shown", "P2": "refuted"}[row["prediction"]]


def test_every_mean_of_readme_and_docs_is_in_the_results():
    known = {
        value
        for name in budget.COMPARISONS
        for row in budget.row_table(read_results(name)).astype(str).to_numpy().tolist()
        for value in row
    }
    for committed in map(read_results, results.NAMES):
        for runs in ([*committed.of_row(label).values()] for label in committed.against):
            for name, part in runs[0].sets.items():
                known |= {results.mean_text([run.sets[name].pass_at[k] for run in runs]) for k in part.pass_at}
    root = HERE.parents[1]
    for page in (root / "README.md", *(root / "docs").rglob("*.md")):
        for found in re.findall(r"[0-9]\.[0-9]+ ± [0-9]\.[0-9]+", page.read_text()):
            assert found in known, (page.name, found)
