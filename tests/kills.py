"""Train and resume tiny runs in processes of their own, killed at a chosen file operation."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

from gar.config import RunConfig, make_config
from gar.records import RunFolder, open_run
from tests.ranks import FORKSERVER

SECONDS = 120

TINY: dict[str, Any] = {
    "method": "gar-grpo",
    "data": {"max_problems": 4},
    "verify": {"format": "none"},
    "evaluate": {"sources": ["test"], "num_samples": 2, "max_problems": 2, "pass_at_k": [1, 2]},
    "preflight": {"mode": "off"},
    "trl": {
        "max_steps": 5,
        "save_steps": 2,
        "logging_steps": 3,
        "save_total_limit": 2,
        "per_device_train_batch_size": 16,
        "num_generations": 8,
        "max_completion_length": 24,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
    },
}
"""Two steps in an epoch: the problems come in three orders. Checkpoints 2, 4 and 5, of which the last two stay."""


def tiny(folder: Path, name: str, **sections: Mapping[str, Any]) -> RunConfig:
    """A run of seconds on the embedded task."""
    values = {key: {**value} if isinstance(value, dict) else value for key, value in TINY.items()}
    for key, value in {"records": {"output_dir": str(folder), "name": name}, **sections}.items():
        values[key] = values.get(key, {}) | dict(value)
    return make_config(values)


def train_whole(config: RunConfig) -> RunFolder:
    """The run that nobody interrupts."""
    assert in_process(_train, config) == 0
    return RunFolder.open(Path(config.records.output_dir) / str(config.records.name))


def train_until(config: RunConfig, at: str, nth: int = 1) -> RunFolder:
    """A run that is killed before the `nth` time that a path which ends in `at` is put in place or removed."""
    assert in_process(_train, config, at, nth) == -signal.SIGKILL
    return RunFolder(Path(config.records.output_dir) / str(config.records.name))


def resume_until(run: RunFolder, at: str, nth: int = 1) -> None:
    """Resume a run, and kill it likewise."""
    assert in_process(_resume, run.path, at, nth) == -signal.SIGKILL


def resume_whole(run: RunFolder, **options: Any) -> str:
    """Resume a run to its end; what it said."""
    code, said = _resumed(run, **options)
    assert code == 0, said
    return said


def refused_resume(run: RunFolder, **options: Any) -> str:
    """Why a run is not resumed."""
    code, said = _resumed(run, **options)
    assert code == 1, said
    return said


def _resumed(run: RunFolder, **options: Any) -> tuple[int, str]:
    said = run.path.with_name(f"{run.path.name}.said")
    code = in_process(_resume, run.path, "", 0, str(said), **options)
    return code, " ".join(said.read_text().split())


def in_process(function: Callable[..., None], *arguments: Any, **options: Any) -> int:
    """Exit code of a process that calls it; minus the signal that killed it."""
    process = FORKSERVER.Process(target=function, args=arguments, kwargs=options)
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{function.__name__} took over {SECONDS} s")
    return process.exitcode


def assert_equal_runs(found: RunFolder, expected: RunFolder) -> None:
    """Everything but times is the same to the last bit, and nothing else is left."""
    assert numbers(open_run(found.path).metrics) == numbers(open_run(expected.path).metrics)
    assert open_run(found.path).steps == open_run(expected.path).steps
    for step in open_run(expected.path).steps:
        assert pq.read_table(found.rollouts_path(step)).equals(pq.read_table(expected.rollouts_path(step)))
    for name in (path.stem for path in (expected.path / "evaluation").glob("*.json")):
        measured = [open_run(run.path).read_json(f"evaluation/{name}.json") for run in (found, expected)]
        for each in measured:
            del each["inputs_hash"]  # the settings hold the name of the run
            for values in each["sets"].values():
                del values["seconds"]
        assert measured[0] == measured[1]
    names = [sorted(path.name for path in run.path.iterdir()) for run in (found, expected)]
    assert names[0] == names[1]
    steps = [sorted(path.name for path in run.checkpoints.iterdir()) for run in (found, expected)]
    assert steps[0] == steps[1]
    for file in (path.relative_to(expected.path) for path in expected.path.rglob("*.safetensors")):
        assert_equal_weights(found.path / file, expected.path / file)
    assert [run.read_run().status for run in (found, expected)] == ["finished", "finished"]
    assert found.read_run().summary["steps"] == expected.read_run().summary["steps"]


def assert_equal_weights(found: Path, expected: Path) -> None:
    weights = [load_file(path) for path in (found, expected)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def numbers(rows: list[dict]) -> list[dict]:
    """Metrics without times."""
    return [{name: row[name] for name in row if not name.startswith(("time/", "step_time"))} for row in rows]


def _train(config: RunConfig, at: str = "", nth: int = 0) -> None:
    from gar.train.run import train

    _prepare(at, nth)
    train(config, say=lambda what: None)


def _resume(path: Path, at: str = "", nth: int = 0, said: str | None = None, **options: Any) -> None:
    from gar.errors import GarError
    from gar.train.run import resume

    _prepare(at, nth)
    torch.manual_seed(99)  # a new process knows nothing of the old one's random state
    lines: list[str] = []
    try:
        resume(path, say=lambda what: lines.append(str(what)), **options)
    except GarError as error:
        lines.append(f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
    finally:
        if said is not None:
            Path(said).write_text("\n".join(lines))


def _prepare(at: str, nth: int) -> None:
    torch.set_num_threads(1)
    seen = 0

    def kill_at(event: str, arguments: tuple) -> None:
        nonlocal seen
        place = {"os.rename": 1, "os.remove": 0, "shutil.rmtree": 0}.get(event)
        if place is not None and at and str(arguments[place]).endswith(at):
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill_at)
