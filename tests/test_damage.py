"""A run folder with any one file damaged in any way: a sentence, or a page that says what is missing; no traceback."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import gar.report.build
from gar.cli.main import main
from gar.records import RunFolder
from tests.damage import damages
from tests.report.runs import make_run

FILES = ("run.json", "config.yaml", "metrics.jsonl", "evaluation/before.json", "evaluation/after.json",
         "rollouts/step-000002.parquet")  # fmt: skip
CASES = [(file, name) for file in FILES for name in damages(Path(file))]


@dataclass(frozen=True)
class Said:
    """What a command answered: exit status, both streams as one line each, and what it wrote."""

    status: int
    out: str
    err: str
    written: Sequence[bytes]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Matplotlib takes a second a figure."""
    monkeypatch.setattr(gar.report.build, "pictures", lambda *_: [])


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A run folder as `gar train` leaves it, without the training."""
    path = make_run(tmp_path_factory.mktemp("written"))
    lines = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(
        lines.replace('"time/gar', '"time/generation_seconds": 1.0, "time/update_seconds": 1.0, "time/gar')
    )
    RunFolder(path).update_run(status="finished", summary={"steps": 6})
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run of `gar train`."""
    folder = tmp_path_factory.mktemp("trained")
    settings = ["--trl.max_steps", "3", "--evaluate.num-samples", "4", "--evaluate.max-problems", "8",
                "--preflight.mode", "off", "--records.name", "run"]  # fmt: skip
    assert main(["train", "--preset", "demo", *settings, "--records.output_dir", str(folder)]) == 0
    shutil.rmtree(folder / "run" / "checkpoints")
    return folder / "run"


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture
def run(lab, capsys, monkeypatch):
    """Runs a command on a copy of a run folder that `damage` has changed."""
    monkeypatch.setenv("COLUMNS", "5000")

    def said(whole: Path, damage=lambda path: None) -> Said:
        shutil.rmtree(lab)
        folder, out = shutil.copytree(whole, lab / "run"), lab / "out"
        out.mkdir()
        damage(folder)
        capsys.readouterr()
        status = main(["report", str(folder), "--out", str(out / "page.html")])
        streams = capsys.readouterr()
        files = sorted(out.glob("*"))
        text = re.sub(r"\(\d+\.\d MB\)", "", streams.out)
        return Said(status, text, streams.err, [file.read_bytes() for file in files])

    return said


@pytest.fixture(scope="module")
def answers() -> dict[Path, Said]:
    """What the report says of whole run folders."""
    return {}


@pytest.fixture
def whole_answer(run, answers):
    """What the report says of a whole run folder."""

    def said(whole: Path) -> Said:
        if whole not in answers:
            answers[whole] = run(whole)
        return answers[whole]

    return said


def check(said: Said, expected: Said, file: str) -> None:
    """The same answer, or one that names the file or what is missing of it; a failure in one sentence."""
    named = [Path(file).name, "rollouts", "step 2", "settings", "metrics"] if "rollouts" in file else [Path(file).name]
    assert expected.status == 0
    if said.status == 0:
        notes = [line for line in said.out.splitlines() if line not in expected.out.splitlines()]
        told = any(word in line for word in named for line in notes)
        assert told or said == expected, (said.out, expected.out)
        assert said.err == ""
    else:
        assert (said.status, said.out) == (1, "")
        assert any(word in said.err for word in named), said.err
        assert said.err.startswith("gar ")
        assert said.err.count("\n") == 1 or "config.yaml" in said.err  # YAML shows the place on lines of its own
        assert "Traceback" not in said.err


@pytest.mark.parametrize(("file", "name"), CASES)
def test_a_damaged_file_is_named(run, whole_answer, written, file, name):
    expected = whole_answer(written)
    check(run(written, lambda folder: damages(Path(file))[name](folder / file)), expected, file)


@pytest.mark.slow  # every file and damage, of a run that was trained
@pytest.mark.parametrize("file", FILES)
def test_the_report_names_every_damaged_file(run, whole_answer, trained, file):
    expected = whole_answer(trained)
    for damage in damages(Path(file)).values():
        check(run(trained, lambda folder, damage=damage: damage(folder / file)), expected, file)
