"""Adapters through `gar train`: a run's files, exact resumes, and training that continues an adapter."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from gar.config import RunConfig, make_config
from gar.errors import RecordError
from gar.models.load import load_policy
from gar.records import RunFolder, open_run
from gar.settings import ModelSettings
from gar.train.run import resume, train
from tests.support.damage import flip
from tests.support.errors import raises
from tests.support.runs import assert_equal_runs

SMALL = {
    "evaluate": {"sources": ["test"], "num_samples": 2, "pass_at_k": [1], "max_problems": 4},
    "preflight": {"mode": "off"},
    "trl": {
        "max_steps": 3, "save_steps": 1, "per_device_train_batch_size": 8, "max_completion_length": 32,
        "learning_rate": 1e-2, "lr_scheduler_type": "constant",
    },
}  # fmt: skip
DISTURBED = {
    "adapter": {"rank": 4, "dropout": 0.1},
    "trl": {"gradient_checkpointing": True, "beta": 0.05, "num_iterations": 2},
}


def config(folder: Path, name: str, **sections: dict[str, Any]) -> RunConfig:
    sections["records"] = {"output_dir": str(folder), "name": name}
    return make_config({key: SMALL.get(key, {}) | sections.get(key, {}) for key in {*SMALL, *sections}})


SAID: list[str] = []


@pytest.mark.slow
def test_an_adapter_or_its_base_with_a_flipped_byte_is_not_loaded(finished: RunFolder, tmp_path: Path):
    run = Path(shutil.copytree(finished.path, tmp_path / "run"))
    flip(run / "adapter" / "adapter_model.safetensors", -5)
    with raises(RecordError, "damage", "adapter/adapter_model.safetensors"):
        load_policy(ModelSettings(path=str(run / "adapter")))
    adapter = Path(shutil.copytree(finished.path / "adapter", tmp_path / "adapter"))
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": str(run / "model")}))
    load_policy(ModelSettings(path=str(adapter)))
    (run / "model" / "config.json").write_text((run / "model" / "config.json").read_text() + " ")
    with raises(RecordError, "damage", "model/config.json"):
        load_policy(ModelSettings(path=str(adapter)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with dropout, checkpointing, KL and two updates."""
    return train(config(tmp_path_factory.mktemp("runs"), "whole", **DISTURBED), say=lambda what: SAID.append(str(what)))


@pytest.mark.slow
@torch.no_grad()
def test_run_leaves_the_adapter_and_a_merged_model(finished: RunFolder):
    ids, folders = torch.arange(16).reshape(2, 8), (finished.path / "adapter", finished.path / "model", "embedded")
    adapted, merged, base = (load_policy(ModelSettings(path=str(path)))[0].eval() for path in folders)
    expected, *others = (model(input_ids=ids).logits for model in (adapted, merged, base))
    same, different = (float((logits - expected).abs().max() / expected.abs().max()) for logits in others)
    assert same < 1e-5
    assert different > 1e-2  # something was learned
    trained, total = adapted.get_nb_trainable_parameters()
    assert f"Adapter: {trained:,} of {total:,} parameters are trained ({trained / total:.1%})." in SAID
    assert f"Adapter         {finished.path / 'adapter'}" in SAID
    # Evaluation uses the adapter: the same random numbers, but different responses.
    before, after = (open_run(finished.path).evaluations[name]["test"] for name in ("before", "after"))
    assert after.problems != before.problems
    assert after.mean_response_tokens != before.mean_response_tokens
    assert "library_name: transformers" in (finished.path / "model" / "README.md").read_text()


def cut_and_resume(whole: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """The same run, interrupted in the middle of the third step, and resumed from the checkpoint before."""
    records = whole.records.model_copy(update={"output_dir": str(folder), "name": "cut"})
    write = RunFolder.write_rollouts

    def interrupt(self: RunFolder, rows: Any) -> None:
        if rows[0].step == 3:
            raise KeyboardInterrupt
        write(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_rollouts", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(whole.model_copy(update={"records": records}), say=str)
    assert len(open_run(RunFolder.open(folder / "cut").path).metrics) == 2
    torch.manual_seed(99)  # a new process does not have the old random state
    return resume(folder / "cut", say=str)


@pytest.mark.slow
def test_interrupted_run_resumes_to_the_result_of_an_uninterrupted_one(
    finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert_equal_runs(cut_and_resume(config(tmp_path, "whole", **DISTURBED), tmp_path, monkeypatch), finished)


@pytest.mark.slow
def test_run_that_goes_on_training_an_adapter_resumes_exactly(
    finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With a KL weight TRL keeps a copy of the first adapter as the reference, in the checkpoints too."""
    trl = {"beta": 0.05, "disable_dropout": True}
    settings = config(tmp_path, "whole", model={"path": str(finished.path / "adapter")}, trl=trl)
    whole = train(settings, say=str)
    first, second, _ = open_run(whole.path).metrics
    assert first["kl"] == pytest.approx(0, abs=1e-6)  # it starts where the reference stands
    assert second["kl"] > 1e-3
    assert (whole.path / "checkpoints" / "checkpoint-2" / "ref").is_dir()
    assert not (whole.path / "adapter" / "ref").exists()
    base = json.loads((whole.path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert Path(base).name == "arithmetic-qwen3"
    assert_equal_runs(cut_and_resume(settings, tmp_path, monkeypatch), whole)
