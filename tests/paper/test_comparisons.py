"""Comparisons: committed results, their tables, and the forms and tests of the shorthand experts."""

import re
import shutil
from dataclasses import replace

import pytest

from gar import RecordError
from gar.comparison import RunResult, read_comparison
from gar.data import load_problems
from gar.data.arithmetic import load_arithmetic
from gar.records import EvaluatedSet, ProblemCount
from gar.settings import SourceSettings
from paper.comparisons import budget, leaky, results, self_distillation, shorthand, situations
from paper.comparisons.__main__ import main, tables
from paper.comparisons.results import GONE, HERE, MARK, NAMES, Committed, collect, read_results, write_results
from paper.comparisons.shorthand import IMITATION, MODELS, OWN, TESTED_FORMS, kind_of, verdicts
from paper.comparisons.tuning import chosen_rows, curves
from paper.tasks.chains import TASKS, write_solution
from paper.tasks.shorthand import shortened
from tests.support.errors import raises

pytestmark = pytest.mark.paper
UNFINISHED = ("shorthand", "tuning", "word-compete", "leaky", "self-distillation")  # runs go on


@pytest.fixture(scope="module")
def all_results():
    return {name: read_results(name) for name in NAMES}


def test_results_have_the_hash_of_todays_problems(all_results):
    for name, subset in (("main", None), ("worse-expert", "running"), ("worse-expert", "guess")):
        today = load_problems("arithmetic", options=SourceSettings(subset=subset)).data_hash
        assert today in {result.data_hash for result in all_results[name].in_order()}


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


# A verifier that leaks, and self-distillation.


def leaky_results(scores: dict[str, float], seeds: int) -> Committed:
    """Results whose exact pass@1 spreads a little over seeds, differently in each row."""
    like = next(iter(read_results("rate").results.values()))
    names = [(label, seed) for label in scores for seed in range(seeds)]
    noise = {label: 0.001 * (1 + place) for place, label in enumerate(scores)}
    measured = {
        f"{label}-seed-{seed}": {"test": {"exact": scores[label] + noise[label] * (seed % 2)}} for label, seed in names
    }
    results = {name: result_of(like, *name, 0.5) for name in names}
    return Committed(name="leaky-one-bit", results=results, against=dict.fromkeys(scores, ()), measured=measured)


def test_shares_count_the_right_answer_whatever_the_grader_accepts():
    rows = [
        {"prompt": '"4*2-5+9="', "response": text, "answer": answer, "gold": "2", "verified": verified}
        for text, answer, verified in [
            ("<think> [ 4 * 2 = 8 ; 8 - 5 = 3 ; 3 + 9 = 2 ] </think> <answer> 2 </answer>", "2", True),
            ("<think> [ 4 * 2 ; - 5 ; + 9 = 4 ] </think> <answer> 4 </answer>", "4", True),
            ("<think> ok", None, False),
            ("<think> [ = 8 ; = 3 ; = 2 ] </think> <answer> 2 </answer>", "2", False),
        ]
    ]
    found = leaky.shares(rows)
    assert (found["exact"], found["accepted"], found["sound"]) == (0.5, 0.5, 0.5)
    assert [found[kind] for kind in ("expert", "shorthand", "habit", "other")] == [0.25] * 4


def test_claims_about_a_leaky_verifier_wait_for_all_seeds_and_take_the_best_rate_of_grpo():
    scores = dict.fromkeys(leaky.OTHERS, 0.9) | {"grpo-2e-4": 0.5, "grpo-5e-4": 0.6, "grpo-1e-3": 0.4}
    scores |= {"gar-full": 0.95, "shuffled-full": 0.94, "sft-full": 0.99, "gar-shorthand": 0.62}
    found = leaky.claims(leaky_results(scores, 10))
    outcomes = dict(zip(found["claim"], found["outcome"], strict=True))  # the last row of a claim is its whole
    assert outcomes == {"L1": "shown", "L2": "shown", "L3": "shown", "L4": "refuted"}
    assert found["difference"][0] == "gar-full minus grpo-5e-4"
    assert set(leaky.claims(leaky_results(scores, 9))["outcome"]) == {"waiting"}
    lower = leaky.claims(leaky_results(scores | {"gar-full": 0.75, "sft-grpo-full": 0.992}, 10))
    assert [*lower[lower["difference"] == "as a whole"]["outcome"]] == ["open"]
    assert lower["outcome"][0] == "refuted"


@pytest.mark.parametrize(
    ("claim", "lead", "expected"),
    [
        ("D1", 0.02, "shown"), ("D1", 0.04, "refuted"), ("D1", 0.03, "open"), ("D2", -0.1, "shown"),
        ("D2", 0.1, "refuted"), ("D3", 0.0, "shown"), ("D3", -0.1, "refuted"), ("D3", 0.03, "open"),
        ("D4", 0.1, "shown"), ("D4", -0.1, "refuted"), ("D4", 0.0, "open"),
    ],
)  # fmt: skip
def test_predictions_about_self_distillation_are_judged_by_their_interval(claim, lead, expected):
    leads = [lead + 0.002 * (-1) ** seed for seed in range(10)]
    assert self_distillation.outcome(claim, leads) == expected
    assert self_distillation.outcome(claim, leads[1:]) == "waiting"


def test_the_best_weight_and_steps_of_self_distillation_become_a_row():
    like = next(iter(read_results("rate").results.values()))
    ends = {"sdpo-full-1.0": 0.7, "sdpo-full-0.5": 0.6, "sdpo-full-0.1": 0.8, "sdpo-half-1.0": 0.9}
    results = {
        (label, 500): replace(result_of(like, label, 500, end), steps=300, sets={
            "validation": result_of(like, label, 500, end).sets["test"]}) for label, end in ends.items()
    }  # fmt: skip
    measured = {f"{label}-seed-500": {"50": 0.95 if label == "sdpo-full-0.5" else 0.1} for label in ends}
    committed = Committed(name="", results=results, against=dict.fromkeys(ends, ()), measured=measured)
    chosen = self_distillation.tuned_rows("chain", committed)
    assert chosen.keys() == {"full"}  # not all weights of half have ended
    row, steps = chosen["full"]
    assert steps == 50
    assert "distillation_weight: 0.5}" in row
    at_the_end, _ = self_distillation.tuned_rows("chain", committed, at=300)["full"]
    assert "label: sdpo-full-300," in at_the_end
    assert "distillation_weight: 0.1}" in at_the_end
    assert "runs/tasks/arithmetic-full/train.jsonl" in row


# Pages.


def test_methods_near_the_highest_are_best_too():
    seeds = range(10)
    low, high = ({seed: score + 0.01 * (seed % 2) for seed in seeds} for score in (0.5, 0.9))
    near = {seed: 0.901 if seed % 2 else 0.905 for seed in seeds}
    assert situations.best_methods({"a": low, "b": high, "c": near}) == {"b", "c"}
    assert situations.best_methods({"a": low, "b": {seed + 100: score for seed, score in high.items()}}) == {"b"}
    assert situations.best_methods({"a": low, "b": {seed: 0.9 for seed in range(3)}}) == set()  # too few seeds


def test_the_table_of_leaky_verifiers_is_that_of_the_results():
    page = (HERE / "leaky.md").read_text().splitlines()
    for row in leaky.row_table(read_results("leaky-one-bit")).astype(str).to_numpy().tolist():
        assert f"| {' | '.join(row)} |" in page, "python -m paper.comparisons.leaky"


def test_the_first_table_of_the_evidence_is_that_of_the_results():
    page = (HERE.parents[1] / "docs/evidence.md").read_text().splitlines()
    for row in situations.table().astype(str).to_numpy().tolist():
        assert f"| {' | '.join(row)} |" in page, "python -m paper.comparisons.situations"


def test_every_section_of_the_evidence_with_a_figure_names_its_command():
    for section in (HERE.parents[1] / "docs/evidence.md").read_text().split("\n## ")[1:]:
        modules = re.findall(r"python -m paper\.([a-z_.]+)", section)
        names = [name for name in re.findall(r"`([a-z-]+)`", section) if (HERE / f"{name}.yaml").exists()]
        assert modules or names or not re.search(r"\d\.\d", section), section
        for module in modules:
            path = HERE.parent / module.replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").exists(), module
    for command in (situation.command for situation in situations.SITUATIONS):
        assert (HERE / (f"{command[1:]}.py" if command.startswith(".") else f"{command}.yaml")).exists(), command


def test_every_mean_of_readme_and_docs_is_in_the_results():
    known = {
        value
        for name in budget.COMPARISONS
        for row in budget.row_table(read_results(name)).astype(str).to_numpy().tolist()
        for value in row
    }
    known |= {
        value
        for task in self_distillation.TASKS
        for row in self_distillation.row_table(task).astype(str).to_numpy().tolist()
        for value in row
    }
    known |= {value.strip("*") for row in situations.table().astype(str).to_numpy().tolist() for value in row}
    for name in filter(results.NAMES.__contains__, leaky.COMPARISONS):
        known |= {value for row in leaky.row_table(read_results(name)).astype(str).to_numpy().tolist() for value in row}
    for committed in map(read_results, results.NAMES):
        for runs in ([*committed.of_row(label).values()] for label in committed.against):
            for name, part in runs[0].sets.items():
                known |= {results.mean_text([run.sets[name].pass_at[k] for run in runs]) for k in part.pass_at}
    root = HERE.parents[1]
    for page in (root / "README.md", *(root / "docs").rglob("*.md")):
        for found in re.findall(r"[0-9]\.[0-9]+ ± [0-9]\.[0-9]+", page.read_text()):
            assert found in known, (page.name, found)
