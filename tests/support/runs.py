"""Compare two runs."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from gar.records import RunFolder, open_run


def assert_equal_runs(found: RunFolder, expected: RunFolder) -> None:
    """Everything but times is the same to the last bit, and nothing else is left."""
    runs = [open_run(run.path) for run in (found, expected)]
    assert numbers(runs[0].metrics) == numbers(runs[1].metrics)
    assert runs[0].rollouts().equals(runs[1].rollouts())
    assert runs[0].evaluations == runs[1].evaluations
    for part in (Path(), Path("checkpoints")):
        names = [sorted(path.name for path in (run.path / part).iterdir()) for run in (found, expected)]
        assert names[0] == names[1]
    for file in (path.relative_to(expected.path) for path in expected.path.rglob("*.safetensors")):
        weights = [load_file(run.path / file) for run in (found, expected)]
        assert weights[0].keys() == weights[1].keys()
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert [run.status for run in runs] == ["finished", "finished"]


def numbers(rows: list[dict]) -> list[dict]:
    """Metrics without times."""
    return [{name: row[name] for name in row if not name.startswith(("time/", "step_time"))} for row in rows]
