"""The package as others get it: a wheel in an environment of its own, away from the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The programs of an environment with our wheel. The packages below us come from the environment of the tests."""
    tree, wheels, folder = tmp_path / "tree", tmp_path / "wheels", tmp_path / "environment"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", wheels, tree], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    below = Path(sysconfig.get_path("purelib", vars={"base": str(folder)})) / "below.pth"
    below.write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = wheels.iterdir()
    install = ["--python", folder / "bin/python", "install", "--no-deps", "--no-index", "--ignore-installed", wheel]
    subprocess.run([*pip, *install], check=True)
    return folder / "bin"


@pytest.mark.slow
def test_wheel_alone_trains_the_demo(tmp_path, environment):
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    place = run(str(environment / "python"), "-c", "import gar; print(gar.__file__)")
    assert Path(place).is_relative_to(environment.parent)
    run(str(environment / "gar"), "train", "--preset", "demo", "--trl.max_steps", "3", "--records.name", "short")
    lines = (tmp_path / "runs/short/metrics.jsonl").read_text().splitlines()
    assert sum('"gar/alignment_mean"' in line for line in lines) == 3
