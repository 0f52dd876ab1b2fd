"""Prints the memory, in bytes, that a call takes beside its arguments: `python THIS memory_bytes tokens chunk_tokens`.

A process of its own, since an allocator keeps what earlier work needed.
"""

import re
import sys
from pathlib import Path

import torch

from gar.core import gradient_activation_means

VOCAB, WIDTH, RESPONSES = 151_936, 16, 4


def status(field: str) -> int:
    return 1024 * int(re.findall(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def main(memory_bytes: int, tokens: int, chunk_tokens: int) -> None:
    torch.set_num_threads(1)
    weight = torch.zeros(VOCAB, WIDTH, dtype=torch.bfloat16)
    hidden = torch.ones(tokens, WIDTH, dtype=torch.bfloat16)
    targets, index = torch.zeros(tokens, dtype=torch.long), torch.arange(tokens) % RESPONSES
    kept = torch.tensor([0.5, 1.0, 1.0, 1.0])

    def means(number: int) -> None:
        gradient_activation_means(
            hidden[:number], weight[:5000], targets[:number], index[:number], num_responses=RESPONSES
        )

    means(4)  # what the first call of any size leaves behind
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    gradient_activation_means(
        hidden, weight, targets, index, num_responses=RESPONSES, keep_fraction=kept,
        chunk_tokens=chunk_tokens, memory_bytes=memory_bytes,
    )  # fmt: skip
    print(status("VmHWM") - before)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
