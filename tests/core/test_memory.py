"""The memory of the closed form at a real vocabulary, measured in processes of their own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gar.core.arguments import Budget, Head
from gar.core.head import make_plan

SCRIPT = Path(__file__).parent / "memory_use.py"
MEBIBYTE = 2**20


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
def test_gradient_activation_means_stay_within_their_memory():
    """All float32 logits of these tokens would be 1.5 GB, and one tile of all of them takes 20 MB."""
    memory_bytes, tokens = 16 * MEBIBYTE, 2400
    done = subprocess.run(
        [sys.executable, SCRIPT, str(memory_bytes), str(tokens), str(tokens)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= memory_bytes


def plan_on(device: str, **settings: Any):
    """A plan for Qwen3-8B's head and 5,000 tokens."""
    head = Head(torch.empty(151_936, 4096, dtype=torch.bfloat16, device="meta"))
    return make_plan(torch.empty(5000, 4096, dtype=torch.bfloat16, device=device), head, Budget(**settings))


def test_make_plan_keeps_to_full_chunks_while_the_memory_allows():
    assert plan_on("cpu", precision="float32")[2:4] == (256, 2048)
    assert plan_on("cpu", precision="storage")[2:4] == (1024, 2048)
    assert plan_on("meta")[2:4] == (1024, 18944)  # 151,936 halved three times, in steps of 128
    assert plan_on("meta", memory_bytes=2**32)[2:4] == (1024, 151_936)
    assert plan_on("meta", memory_bytes=2**27)[2:4] == (512, 2048)  # tiles shrink first, then chunks
    assert plan_on("cpu", memory_bytes=2**22, precision="float32")[2:4] == (8, 128)


@pytest.mark.parametrize("capabilities", [{}, {"avx2": True}, {"avx512_bf16": True}, {"amx_bf16": True}], ids=str)
def test_precision_auto_is_storage_on_a_cpu_that_multiplies_bfloat16(capabilities, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    narrow = torch.bfloat16 if {"avx512_bf16", "amx_bf16"} & set(capabilities) else torch.float32
    assert plan_on("cpu").products == narrow
    assert plan_on("cpu", precision="storage").products == torch.bfloat16
    assert plan_on("cpu", precision="float32").products == torch.float32
