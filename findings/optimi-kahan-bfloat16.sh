#!/usr/bin/env bash
# torch-optimi 0.3.3: with Kahan summation a bfloat16 weight of 1, such as that of a norm, never moves at a learning rate of 1e-6.
# Expected: it moves by 1e-6 a step, as in float32. The compensation is bfloat16 too, so it stops growing at about 0.0005, and the weight needs 0.002 to move.
# Source: `kahan_comp` in optimi/adamw.py
# gar: loads float32 weights, so that small updates count (gar/models/load.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 torch-optimi==0.3.3 packaging <<'PYTHON'
import importlib.metadata

import torch
from optimi import AdamW


def moved(dtype, rate):
    """The way of a weight in 10,000 steps with a constant gradient."""
    weight = torch.nn.Parameter(torch.ones(1, dtype=dtype))
    optimizer = AdamW([weight], lr=rate, weight_decay=0, kahan_sum=dtype == torch.bfloat16, foreach=False)
    for _ in range(10_000):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    return 1 - weight.item()


small, exact, large = moved(torch.bfloat16, 1e-6), moved(torch.float32, 1e-6), moved(torch.bfloat16, 1e-4)
print(importlib.metadata.version("torch-optimi"), "bfloat16:", small, "float32:", exact, "bfloat16 at 1e-4:", large)
assert small == 0
assert abs(exact - 0.01) < 1e-3
assert abs(large - 1) < 0.01
PYTHON
