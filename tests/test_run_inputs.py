"""What a run works with."""

import pytest

from gar.config import make_config
from gar.data.arithmetic import load_task
from gar.models.embedded import load_embedded
from gar.run_inputs import RunInputs


@pytest.mark.parametrize(
    ("source", "task"), [("which-way", "which-way"), ("arithmetic", "arithmetic"), ("gsm8k.jsonl", "arithmetic")]
)
def test_evaluation_splits_are_those_of_the_runs_own_task(source, task):
    inputs = RunInputs.__new__(RunInputs)  # without a model
    inputs.config = make_config({"data": {"source": source, "template": "plain"}, "evaluate": {"max_problems": 5}})
    inputs.tokenizer, inputs._tags = load_embedded(task)[1], inputs.config.verify.tags.as_tags()
    for split in ("test", "harder"):
        assert [p.prompt for p in inputs._load_set(split)] == [p.prompt for p in load_task(task, split)[:5]]
