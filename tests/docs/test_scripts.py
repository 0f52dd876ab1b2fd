"""Scripts that no other test runs: they measure the model and the method, and take a minute."""

import json
import os
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_tune_embedded_task_measures_the_base_model():
    lines = run("scripts/tune_embedded_task.py").splitlines()
    numbers = json.loads(next(line for line in lines if line.startswith("base test")).removeprefix("base test"))
    assert float(numbers["pass@1"]) == pytest.approx(0.393, abs=0.05)  # docs/embedded-task.md


@pytest.mark.slow
def test_overhead_measures_both_methods(tmp_path):
    out = tmp_path / "overhead.json"
    run("benchmarks/overhead.py", "--rounds", "2", "--steps", "2", "--out", str(out))
    assert {"grpo", "gar-grpo"} <= set(json.dumps(json.loads(out.read_text())).replace('"', " ").split())
