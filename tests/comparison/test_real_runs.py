"""`gar compare` as a command that trains, killed, copied and started again."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.jobs import COMPARE

pytestmark = pytest.mark.slow  # each trains several models, in processes that import TRL
SECONDS = 300


def gar_compare(*flags: str) -> list[str]:
    return [sys.executable, "-m", "gar", "compare", "tiny.yaml", *flags]


def whole(folder: Path, *flags: str) -> str:
    """What a command says that runs to its end."""
    done = subprocess.run(gar_compare(*flags), cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(folder: Path) -> str:
    return (folder / "results/tiny/table.csv").read_text()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "first"
    path.mkdir()
    COMPARE.prepare(path)
    return path


def test_a_killed_comparison_goes_on_in_a_copy_of_its_folder_to_the_same_table(folder, tmp_path):
    uninterrupted, elsewhere = tmp_path / "uninterrupted", tmp_path / "elsewhere"
    shutil.copytree(folder, uninterrupted)
    process = subprocess.Popen(gar_compare(), cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL)
    while not (folder / "runs/compare/tiny/gar-grpo-seed-0/checkpoints/checkpoint-1/manifest.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    time.sleep(2)  # the run sees that the comparison is gone
    shutil.copytree(folder, elsewhere)
    assert [path.name for path in (elsewhere / "results/tiny").glob("*.json")] == ["grpo-seed-0.json"]
    whole(elsewhere)
    whole(uninterrupted)
    assert numbers(elsewhere) == numbers(uninterrupted)
