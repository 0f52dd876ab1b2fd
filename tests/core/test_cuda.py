"""The Triton kernels without a GPU: their arithmetic in Triton's interpreter, machine code from its compiler."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.processes import completed

SCRIPT = Path(__file__).with_name("kernels.py")


def run(**environment: str) -> str:
    pytest.importorskip("triton", reason="triton is not installed")
    told = {**os.environ, **environment}
    done = completed([sys.executable, SCRIPT], env=told)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_triton_kernels_compute_what_torch_computes():
    errors = json.loads(run(TRITON_INTERPRET="1"))
    assert errors["exponentials"] <= 2**-7  # bfloat16, which the interpreter truncates
    assert errors["total"] <= 1e-6  # summed before that
    assert errors["at_target"] <= 1e-6
    for signal in ("gradient-activation", "gradient"):
        assert errors[signal] <= 1e-5  # probabilities of 8 bits, over 300 rows
        assert errors[f"{signal}, length"] <= 2**-8


@pytest.mark.slow
def test_triton_kernels_compile_for_hopper():
    run()
