"""An evaluation with any one file damaged: what is read is what was written, or the file is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gar.cli.main import main
from gar.errors import RecordError
from gar.evaluation.folder import EvaluationFolder
from tests.support.damage import damages

READERS: dict[str, Callable[[EvaluationFolder], Any]] = {
    "set.json": EvaluationFolder.identity,
    "problems.jsonl": EvaluationFolder.problems,
    "samples.jsonl": lambda folder: list(folder.samples),
    "verdicts.jsonl": lambda folder: list(folder.verdicts),
    "metrics.json": EvaluationFolder.metrics,
}
CASES = [(file, name) for file in READERS for name in damages(Path(file))]
# A step is nothing to an evaluation; a line less is what a kill leaves, and so is no line.
OTHERWISE_READ = ("a row without a step", "a step as text", "a step of a half", "written twice", "backwards")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Six problems of the embedded task, graded."""
    folder = tmp_path_factory.mktemp("evals") / "model"
    told = ["--benchmark", "arithmetic", "--max-new-tokens", "40", "--samples", "3", "--limit", "6"]
    assert main(["eval", "run", "embedded", *told, "--out", str(folder)]) == 0
    return folder / "arithmetic"


@pytest.mark.parametrize(("file", "name"), CASES)
def test_a_damaged_file_is_read_as_it_was_written_or_named(whole, tmp_path, file, name):
    read = READERS[file]
    expected = read(EvaluationFolder(whole))
    path = tmp_path / file
    path.write_bytes((whole / file).read_bytes())
    damages(path)[name](path)
    try:
        values = read(EvaluationFolder(tmp_path))
    except RecordError as error:
        fault = str(error)
    else:
        fault = ""
    if fault:
        assert file in fault
        assert "\n" not in fault
        return
    if file.endswith(".jsonl") and name in OTHERWISE_READ:
        return  # `gar eval score` counts the samples of each problem
    assert values == (expected[: len(values)] if file.endswith(".jsonl") else expected)


@pytest.mark.slow  # workers are started for every one
@pytest.mark.parametrize("command", ["score", "table"])
@pytest.mark.parametrize("file", READERS)
def test_commands_give_the_same_answer_or_name_the_file(whole, tmp_path, capsys, command, file):
    folder = tmp_path / "a" / "arithmetic"
    other = [str(whole.parent)] if command == "table" else []

    def said() -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["eval", command, str(folder.parent), *other])
        return status, *capsys.readouterr()

    for name, damage in ({"nothing": lambda path: None} | dict(damages(Path(file)))).items():
        for path in whole.iterdir():
            target = folder / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.rmdir() if target.is_dir() else target.unlink(missing_ok=True)
            target.write_bytes(path.read_bytes())
        damage(folder / file)
        status, out, err = said()
        if name == "nothing":
            expected = out
        if (status, err.count("\n")) == (1, 1):
            continue
        assert (status, err) == (0, "")
        assert sorted(out.splitlines()) == sorted(expected.splitlines()), name
