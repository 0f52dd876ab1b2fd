"""The memory of the closed form at a large vocabulary, measured in a process of its own, which runs this file."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gar.core import gradient_activation_means
from gar.core.arguments import Budget, Head
from gar.core.head import make_plan
from tests.docs.pages import ROOT
from tests.support.processes import completed

MEMORY_BYTES, TOKENS, VOCAB, WIDTH, RESPONSES = 16 * 2**20, 2400, 40_000, 16, 4


def status(field: str) -> int:
    return 1024 * int(re.findall(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def memory_use() -> int:
    """The bytes that a call takes beside its arguments."""
    torch.set_num_threads(1)
    weight = torch.zeros(VOCAB, WIDTH, dtype=torch.bfloat16)
    hidden = torch.ones(TOKENS, WIDTH, dtype=torch.bfloat16)
    targets, index = torch.zeros(TOKENS, dtype=torch.long), torch.arange(TOKENS) % RESPONSES

    def means(number: int, rows: int, **options: Any) -> None:
        batch = (hidden[:number], weight[:rows], targets[:number], index[:number])
        gradient_activation_means(*batch, num_responses=RESPONSES, **options)

    means(4, 5000)  # what the first call of any size leaves behind
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    kept = torch.tensor([0.5, 1.0, 1.0, 1.0])
    means(TOKENS, VOCAB, keep_fraction=kept, chunk_tokens=TOKENS, memory_bytes=MEMORY_BYTES)
    return status("VmHWM") - before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
def test_gradient_activation_means_stay_within_their_memory():
    """All float32 logits of these tokens would be 384 MB, and one tile of all of them takes 20 MB."""
    done = completed([sys.executable, "-m", "tests.core.test_memory"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= MEMORY_BYTES


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


def test_precision_auto_is_storage_on_a_cpu_that_multiplies_bfloat16(monkeypatch):
    assert plan_on("cpu", precision="storage").products == torch.bfloat16
    assert plan_on("cpu", precision="float32").products == torch.float32
    for capability, narrow in (("", False), ("avx2", False), ("avx512_bf16", True), ("amx_bf16", True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda name=capability: {name: True}, raising=False)
        assert plan_on("cpu").products == (torch.bfloat16 if narrow else torch.float32)


if __name__ == "__main__":
    print(memory_use())
