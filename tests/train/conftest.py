"""One short run, which several tests read or resume."""

import shutil
from pathlib import Path

import pytest

from gar.cli.main import main
from gar.records import RunFolder

FAST = [
    "--preset", "demo", "--trl.max_steps", "4", "--trl.save_steps", "2", "--trl.per_device_train_batch_size", "16",
    "--trl.max_completion_length", "32", "--evaluate.num-samples", "4", "--evaluate.max-problems", "4",
    "--preflight.num-problems", "4",
]  # fmt: skip


def under(folder: Path, name: str) -> list[str]:
    return ["--records.output_dir", str(folder), "--records.name", name]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("runs")
    assert main(["train", *FAST, *under(folder, "whole")]) == 0
    return RunFolder.open(folder / "whole")


@pytest.fixture
def trained(finished: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy without its model, as a kill after the last step leaves it: checkpoints 2 and 4."""
    run = RunFolder(Path(shutil.copytree(finished.path, tmp_path / "run")))
    shutil.rmtree(run.path / "model")
    run.update_run(status="interrupted")
    return run
