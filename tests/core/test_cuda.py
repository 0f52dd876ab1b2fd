"""The Triton kernels without a GPU: their arithmetic in Triton's interpreter, their machine code from its compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(script: str, **environment: str) -> str:
    pytest.importorskip("triton", reason="triton is not installed")
    done = subprocess.run(
        [sys.executable, str(HERE / script)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_triton_kernels_compute_what_torch_computes():
    errors = json.loads(run("interpreted_kernels.py", TRITON_INTERPRET="1"))
    assert errors["exponentials"] <= 2**-7  # bfloat16, which the interpreter truncates
    assert errors["total"] <= 1e-6  # summed before that
    assert errors["at_target"] <= 1e-6
    for signal in ("gradient-activation", "gradient"):
        assert errors[signal] <= 1e-5  # probabilities of 8 bits, over 300 rows
        assert errors[f"{signal}, length"] <= 2**-8


def test_triton_kernels_compile_for_hopper_without_spills():
    found = json.loads(run("compiled_kernels.py"))
    assert set(found) == {"exponentials_kernel", "exponentials_kernel, bias", "response_sums_kernel"}
    for name, use in found.items():
        assert use["spill_bytes"] == 0, name
        assert use["registers"] <= 128, name  # 16 warps and more fit on an SM
