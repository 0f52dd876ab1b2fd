"""An evaluation with any one file damaged, lost or swapped: an error names the file, and no number is made of it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gar.cli.main import main
from gar.errors import RecordError
from gar.evaluation.benchmark_table import load_model
from gar.evaluation.folder import EvaluationFolder, evaluation_folders
from gar.evaluation.job import ScoreSettings
from gar.evaluation.scoring import score
from gar.records import open_run
from tests.support.damage import damages
from tests.support.errors import raises

FILES = ("set.json", "problems.jsonl", "responses.jsonl", "samples.parquet", "metrics.json", "manifest.jsonl")
# `gar eval score` makes the others anew.
READ_BY_SCORE = ("set.json", "problems.jsonl", "responses.jsonl")

SAME_MANIFEST = ("a row without a step", "a step as text", "a step of a half", "written twice", "backwards")
"""A manifest says the same after these."""


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory) -> Path:
    """Two evaluations of six problems of the embedded task that differ in their seed, graded."""
    folder = tmp_path_factory.mktemp("evals")
    told = ["--benchmark", "arithmetic", "--max-new-tokens", "40", "--samples", "3", "--limit", "6"]
    for seed in "01":
        assert main(["eval", "run", "embedded", *told, "--seed", seed, "--out", str(folder / seed)]) == 0
    return folder


@pytest.fixture
def copied(evaluations, tmp_path) -> Path:
    shutil.copytree(evaluations, tmp_path / "evals")
    return tmp_path / "evals" / "0" / "arithmetic"


def scored(folder: Path) -> object:
    (written,) = evaluation_folders(folder.parent)
    return score(written, ScoreSettings(num_workers=1))


def tabulated(folder: Path) -> object:
    (evaluation,) = load_model(str(folder.parent)).evaluations["arithmetic"]
    return evaluation.settings, evaluation.evaluations


def is_named(read: Callable[[Path], object], folder: Path, file: str) -> bool:
    try:
        read(folder)
    except RecordError as error:
        # Without its line of the manifest each file is unlisted.
        return "\n" not in str(error) and (file in str(error) or file == "manifest.jsonl")
    return False


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_named_by_every_command(copied, file):
    content, expected = (copied / file).read_bytes(), tabulated(copied)
    known = damages(Path(file if file != "samples.parquet" else "any"))
    known = known | {
        "a flipped bit": lambda path: path.write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])
    }
    for name, damage in known.items():
        path = copied / file
        damage(path)
        if file == "manifest.jsonl" and name in SAME_MANIFEST:
            assert tabulated(copied) == expected
        else:
            assert is_named(tabulated, copied, file), name
            assert file not in READ_BY_SCORE or is_named(scored, copied, file), name
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(content)
    assert tabulated(copied) == expected


def test_a_file_of_another_evaluation_is_named(copied):
    for file in (file for file in FILES if file != "problems.jsonl"):
        content = (copied / file).read_bytes()
        shutil.copy(copied.parents[1] / "1" / "arithmetic" / file, copied / file)
        with raises(RecordError):
            tabulated(copied)
        (fault, *_) = open_run(copied, strict=False).faults
        assert fault.kind in ("changed", "foreign")
        (copied / file).write_bytes(content)


def test_a_changed_response_does_not_continue_an_evaluation(copied, evaluations):
    """The line is another's, or its text was edited: the responses were begun, and not yet listed."""
    lines = (copied / "responses.jsonl").read_bytes().splitlines(keepends=True)
    foreign = (evaluations / "1" / "arithmetic" / "responses.jsonl").read_bytes().splitlines(keepends=True)
    manifest = (copied / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    (copied / "manifest.jsonl").write_bytes(manifest[0])
    for changed in ([foreign[0], *lines[1:4]], [lines[0].replace(b"<answer>", b"<answer> "), lines[1]], lines[1:]):
        (copied / "responses.jsonl").write_bytes(b"".join(changed))
        with raises(RecordError, "damage"):
            list(EvaluationFolder(copied).responses)
