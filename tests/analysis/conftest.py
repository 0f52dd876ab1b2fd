"""Run folders made by hand."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gar.config import parse_yaml
from gar.records import RolloutRecord, RunFolder

WriteRun = Callable[..., RunFolder]


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """A finished run with these rollouts."""

    def write(records: Sequence[RolloutRecord], *, status: str = "finished", config: str = "{}") -> RunFolder:
        folder = RunFolder.create(tmp_path, "run")
        folder.write_run(
            seed=0, command=["gar", "train"], config=parse_yaml(config), config_text=config, data_hash=None
        )
        if status != "running":
            folder.update_run(status=status)
        for step in sorted({record.step for record in records}):
            folder.write_rollouts(step, [record for record in records if record.step == step])
        return folder

    return write
