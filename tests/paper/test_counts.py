"""Counts of methods in the responses of finished runs."""

import json
from pathlib import Path

import pytest

from gar.config import make_config
from gar.records import RunFolder
from gar.records.rollouts import ResponseRecord, SampleRecord
from paper.analyses import solution_methods
from paper.comparisons import word_compete
from paper.comparisons.word_problems import quarters
from tests.support.rows import rollout
from tests.support.runs import begun_run, write_samples

pytestmark = pytest.mark.paper
STEPWISE = "<think> 3 + 4 = 7 then 7 + 2 = 9 </think> <answer> 9 </answer>"
RUNNING = "<think> ok is 7 then is 9 so </think> <answer> 9 </answer>"
GUESS = "<think> ok maybe is 9 so </think> <answer> 9 </answer>"
STEPS = "<think>4 * 6 = 24. 24 - 5 = 19.</think><answer>19</answer>"
EXPRESSION = "<think>4 * 6 - 5 = 19 pens.</think><answer>19</answer>"
REDUCTION = "<think>4 * 6 - 5 = 24 - 5 = 19 pens.</think><answer>19</answer>"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return begun_run(tmp_path, config=make_config({"data": {"source": "arithmetic"}}).model_dump(mode="json"))


def write_step(run: RunFolder, step: int, *rows: tuple[str, bool, float | None], prompt: str = "") -> None:
    """Responses, whether they are right, and their alignment."""
    records = [
        rollout(step, index=index, prompt=prompt, response=text, verified=right, alignment=alignment)
        for index, (text, right, alignment) in enumerate(rows)
    ]
    run.write_rollouts(records)


def test_method_shares_are_those_of_right_responses_of_the_last_generations(run, monkeypatch):
    write_step(run, 1, (RUNNING, True, None), (RUNNING, True, None), prompt="3+4+2=")
    write_step(run, 2, (STEPWISE, True, None), (GUESS, True, None), (RUNNING, False, None), prompt="3+4+2=")
    # The stepwise response mixes its wordings, and counts for none.
    for last, shares in ((1, (0.5, 0.0, 0.5, 0.5)), (10, (0.25, 0.5, 0.25, 0.75))):
        monkeypatch.setattr(solution_methods, "LAST", last)
        found = solution_methods.method_shares(run.path)
        assert found == dict(zip(("expert", "habit", "guess", "words"), shares, strict=True))


def test_quarters_are_means_over_correct_responses(run):
    assert quarters(run.path) == []  # fine-tuning samples nothing in training
    write_step(run, 1, (STEPS, True, 0.5), (REDUCTION, True, 0.3), (REDUCTION, False, 0.9))
    for step in (2, 3):
        write_step(run, step, (EXPRESSION, True, 0.25))
    write_step(run, 4, (STEPS, False, None))
    first, second, _, last = quarters(run.path)
    assert list(first.values()) == [pytest.approx(2 / 3), 0.5, 0.5, 0.4, pytest.approx(0.2)]
    assert list(second.values()) == [1.0, 0.0, 1.0, 0.25, None]
    assert list(last.values()) == [0.0, None, None, None, None]


def test_methods_of_word_problems_are_counted_by_step_with_the_curves_before(run):
    prompt = "Ana has 4 bags of 6 and loses 5\n"
    write_step(run, 1, (STEPS, True, None), (REDUCTION, True, None), (STEPS, False, None), prompt=prompt)
    write_step(run, 2, (STEPS, True, None), ("I guess", False, None), prompt=prompt)
    fields = ResponseRecord.__dataclass_fields__
    before = [rollout(index=index, response=STEPS, prompt=prompt, verified=index == 0) for index in range(4)]
    shared = [{name: getattr(record, name) for name in fields} for record in before]
    write_samples(run, "before", [SampleRecord(**values, set_name="validation") for values in shared])
    run.append_metrics({"step": 1, "entropy": 0.5})
    run.append_metrics({"step": 2, "entropy": 0.25, "eval/validation/pass@1": 0.75, "eval/validation/pass@4": 1.0})
    found = json.loads(json.dumps(word_compete.counted(run.path)))
    assert found["training"]["1"] == {
        "responses": {"steps": 2, "reduction": 1}, "correct": {"steps": 1, "reduction": 1}, "length": 9.0,
    }  # fmt: skip
    assert found["training"]["2"]["responses"] == {"steps": 1, "other": 1}
    table = word_compete.curve_table(found)
    assert table.to_numpy().tolist() == [["0", "0.250", "-", "-", "-"], ["2", "0.750", "0.67", "9.0", "0.375"]]


def test_the_gap_is_between_steps_and_a_method():
    rows = [{"prompt": "4 bags of 6 less 5", "response": text, "verified": right, "num_tokens": 9}
            for text, right in [(STEPS, True), (STEPS, True), (REDUCTION, True), (REDUCTION, False)]]  # fmt: skip
    assert word_compete.methods_table(rows).to_numpy().tolist() == [
        ["steps", "0.500", "0.667", "1.000", "0.000"],
        ["reduction", "0.500", "0.333", "0.500", "0.500"],
    ]
