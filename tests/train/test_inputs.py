"""Inputs of a run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gar.config import make_config
from gar.data.arithmetic import load_arithmetic
from gar.integrations.trl.arguments import grpo_arguments
from gar.models.embedded import load_embedded
from gar.records import RunFolder
from gar.train.inputs import RunInputs
from tests.support.files import write_jsonl


@pytest.mark.parametrize("source", ["arithmetic", "gsm8k.jsonl"])
def test_evaluation_splits_are_those_of_the_embedded_task(source):
    inputs = RunInputs.__new__(RunInputs)  # without a model
    inputs.config = make_config({"data": {"source": source, "template": "plain"}, "evaluate": {"max_problems": 5}})
    inputs.tokenizer, inputs._tags = load_embedded()[1], inputs.config.verify.tags.as_tags()
    for split in ("test", "harder"):
        assert [p.prompt for p in inputs._load_set(split)] == [p.prompt for p in load_arithmetic(split)[:5]]


def test_an_evaluation_is_made_again_where_its_problems_have_changed_under_their_ids(tmp_path):
    inputs = RunInputs.__new__(RunInputs)  # without a model
    inputs.config = make_config({"data": {"template": "plain"}})
    asked: list[list[str]] = []

    def results() -> Iterator[tuple[str, Any]]:
        asked.append([problem.answer for problem in inputs.evaluation_sets["test"]])
        yield "test", SimpleNamespace(to_json=lambda: {"pass_at": {"1": 0.5}}, samples=lambda name: [])

    vars(inputs)["_results"] = results
    folder = RunFolder.create(tmp_path, "run")
    problem = load_arithmetic("test")[0]
    for answer in ("7", "7", "8"):
        inputs.evaluation_sets = {"test": [replace(problem, answer=answer)]}
        inputs.evaluate(folder, "before", step=0)
    assert asked == [["7"], ["8"]]


def test_data_hash_is_that_of_the_data_whatever_the_method_leaves_out(tmp_path):
    """Runs of two methods on the same file are compared by it."""
    rows = [{"prompt": "3+4=", "answer": 7, "expert_solution": solution} for solution in ("7", "7" * 2000)]

    def inputs(method: str) -> RunInputs:
        data = {"source": write_jsonl(tmp_path / "rows.jsonl", rows), "template": "plain"}
        config = make_config({"method": method, "data": data})
        return RunInputs(config, grpo_arguments(config, Path("unused")), lambda text: None)

    grpo, gar = inputs("grpo"), inputs("gar-grpo")
    assert [len(problem.anchors) for problem in (*grpo.problems, *gar.problems)] == [1, 1, 1, 0]
    assert grpo.data_hash() == gar.data_hash()
