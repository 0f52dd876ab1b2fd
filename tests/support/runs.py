"""Run folders that have begun, what is in them, and whether two are equal."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from gar.evaluation.folder import EvaluationFolder
from gar.records import RunFolder, open_run
from gar.records.rollouts import SampleRecord
from gar.records.run_folder import EVALUATION


def begun_run(folder: Path, name: str = "run", config: Mapping[str, Any] | None = None) -> RunFolder:
    """A run folder as `gar train` leaves it before the first step."""
    run = RunFolder.create(folder, name)
    run.write_run(seed=0, command=["gar"], config=dict(config or {}), data_hash=None)
    return run


def write_evaluation(
    run: RunFolder, moment: str, sets: Mapping[str, Mapping[str, Any]], samples: Sequence[SampleRecord] = ()
) -> None:
    """The numbers of sets, and their samples, as `gar train` writes them, in place of earlier ones."""
    for place, (name, numbers) in enumerate(sets.items()):
        evaluation = EvaluationFolder(run.path / EVALUATION / moment / name)
        identity = {
            "place": place,
            "benchmark": {"name": name, "notes": []},
            "prompt": {"template": "plain", "format": "think-answer"},
            "sampling": {"num_samples": numbers["num_samples"]},
        }
        evaluation.begin(identity, [], overwrite=True)
        own = [sample for sample in samples if sample.set_name == name]
        evaluation.write_result(own, {"sets": {name: numbers}})


def write_samples(run: RunFolder, moment: str, samples: Sequence[SampleRecord]) -> None:
    """The samples of one set, and its numbers as they were, if there were any."""
    name = samples[0].set_name
    numbers = run.path / EVALUATION / moment / name / "metrics.json"
    unknown = {"num_samples": 1, "pass_at": {}, "problems": []}
    sets = json.loads(numbers.read_text())["sets"] if numbers.exists() else {name: unknown}
    write_evaluation(run, moment, sets, samples)


def relist(run: Path) -> None:
    """List what a test has added to a finished run."""
    RunFolder(run).update_run(status="finished")


def sha256sum(folder: Path) -> str:
    """What coreutils finds wrong with a folder that has a `SHA256SUMS`. Empty if nothing."""
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert bool(done.returncode) == bool(done.stdout + done.stderr)
    return done.stdout + done.stderr


def contents(folder: Path, *but: str) -> dict[str, bytes]:
    """Every file below a folder by its path, but for those of these names."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name not in but)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def assert_equal_runs(found: RunFolder, expected: RunFolder) -> None:
    """Everything but times is the same to the last bit, and nothing else is left."""
    runs = [open_run(run.path) for run in (found, expected)]
    assert numbers(runs[0].metrics) == numbers(runs[1].metrics)
    assert runs[0].rollouts().equals(runs[1].rollouts())
    assert runs[0].evaluations == runs[1].evaluations
    for part in (Path(), Path("checkpoints")):
        names = [sorted(path.name for path in (run.path / part).glob("*")) for run in (found, expected)]
        assert names[0] == names[1]
    for file in (path.relative_to(expected.path) for path in expected.path.rglob("*.safetensors")):
        weights = [load_file(run.path / file) for run in (found, expected)]
        assert weights[0].keys() == weights[1].keys()
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert [run.status for run in runs] == ["finished", "finished"]


def numbers(rows: list[dict]) -> list[dict]:
    """Metrics without times."""
    return [{name: row[name] for name in row if not name.startswith(("time/", "step_time"))} for row in rows]
