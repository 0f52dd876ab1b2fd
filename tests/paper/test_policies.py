"""The policy of a run or a model, with responses to its problems."""

import shutil

import pytest

from gar.models.embedded import embedded_path
from gar.records import RunFolder
from gar.records.checkpoints import seal_checkpoint
from paper.analyses.policies import load_policy_of

pytestmark = pytest.mark.paper


def test_policy_of_a_run_without_a_final_model_is_its_newest_whole_checkpoint(tmp_path):
    run = RunFolder.create(tmp_path, "run")
    run.write_run(seed=0, command=["gar", "train"], config={}, config_text="data: {template: plain}", data_hash=None)
    for step in (2, 10, 12):
        shutil.copytree(embedded_path(), run.checkpoints / f"checkpoint-{step}")
        if step < 12:
            seal_checkpoint(run, step)
    (run.checkpoints / "checkpoint-x").mkdir()
    (run.checkpoints / "checkpoint-x" / "config.json").write_text("{}")
    assert "There is no final model: checkpoint-10 is used instead." in load_policy_of(str(run.path)).notes
