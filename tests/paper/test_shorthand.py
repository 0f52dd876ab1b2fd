"""Expert solutions in other forms, what is counted of responses, and the tests of three claims."""

from dataclasses import replace

import pytest

from gar.comparison import RunResult, SetCounts
from gar.data import arithmetic
from paper.comparisons import shorthand
from paper.comparisons.results import HERE, Committed, read_results
from paper.comparisons.shorthand import IMITATION, MODELS, OWN, TESTED_FORMS, kind_of, verdicts
from paper.comparisons.tuning import chosen_rows, curves
from paper.tasks.chains import TASKS, write_solution
from paper.tasks.shorthand import shortened

pytestmark = pytest.mark.paper


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
    problem = arithmetic.load_arithmetic("train")[0]
    problem = replace(problem, prompt="4*2-5+9=", answer="2")
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


def run(like: RunResult, label: str, seed: int, score: float) -> RunResult:
    counts = SetCounts(num_samples=1000, problem_ids=["p"], num_correct=[round(1000 * score)])
    return replace(like, label=label, seed=seed, sets={"test": counts})


@pytest.mark.parametrize(
    ("best_imitation", "expected"),
    [(0.50, "refuted"), (0.20, "shown"), (0.30, "open")],
    ids=["ahead", "behind", "level"],
)
def test_claim_b_is_against_the_strongest_of_four_rows(best_imitation, expected):
    like = next(iter(read_results("rate").results.values()))
    scores = {"grpo": 0.2, OWN: best_imitation}
    for form in TESTED_FORMS:
        scores |= {f"gar-{form}": 0.3, f"shuffled-{form}": 0.1, **{f"{name}-{form}": 0.1 for name in IMITATION}}
    noise = {seed: 0.002 * (seed % 3) for seed in range(10)}
    results = {
        (label, seed): run(like, label, seed, score + (noise[seed] if label == OWN else 0.001 * (seed % 2)))
        for label, score in scores.items()
        for seed in range(10)
    }
    results[OWN, 0] = run(like, OWN, 0, best_imitation - 0.002)
    committed = Committed(name="", results=results, against=dict.fromkeys(scores, ()), measured={})
    found = verdicts(dict.fromkeys(shorthand.MODELS, committed))
    assert len(found) == 12
    claim = found["B", "chain", "half"]
    assert claim.other == (OWN if best_imitation > 0.15 else "sft-half")
    assert claim.text.endswith(f"10 seeds: {expected}")
    assert found["A", "chain", "half"].text.endswith("shown")
    missing = replace(committed, results={key: result for key, result in results.items() if key[0] != "sft-half"})
    assert not verdicts(dict.fromkeys(shorthand.MODELS, missing))  # no seed is complete
