"""What the Triton kernels compute, as JSON, and whether they compile, in a process of its own.

`TRITON_INTERPRET=1 python THIS` runs them in Triton's interpreter, which must be chosen before triton is imported.
`python THIS` compiles them for sm_90 without a GPU.
"""

import json
import os
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gar.core import cuda, gradient_activation_means, unit_rows
from gar.core import head as head_module
from gar.core import vectors as vectors_module
from gar.core.arguments import Budget, Head
from gar.core.head import make_plan


def exponentials_errors(device: str = "cpu") -> dict[str, float]:
    """Against torch in float64: a row that is no multiple of the block, a target outside the tile, a bias, a slope."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(5, 5000, generator=generator) * 4
    bias = torch.randn(5000, generator=generator)
    bias[17] = -torch.inf
    columns = torch.tensor([0, 4999, 17, -3, 7000])
    reference = torch.linspace(1, 9, 5)
    total, at_target = torch.full((5,), 2.0, device=device), torch.full((5,), 3.0, device=device)
    there = [tensor.to(device) for tensor in (raw, columns, reference, bias)]
    found = cuda.exponentials_into(*there[:3], 0.7, there[3], total, at_target).double().cpu()
    total, at_target = total.cpu(), at_target.cpu()
    truth = ((raw.double() + bias) * 0.7 - reference[:, None]).exp()
    excluded = torch.zeros(5, dtype=torch.float64)
    for token, column in enumerate(columns.tolist()):
        if 0 <= column < 5000:
            excluded[token] = truth[token, column]
            truth[token, column] = 0.0
    return {
        "exponentials": float(((found - truth).abs() / truth.clamp(min=1e-30)).where(truth > 1e-30, found).max()),
        "total": float((total.double() - 2 - truth.sum(-1)).abs().max() / truth.sum(-1).max()),
        "at_target": float((at_target.double() - 3 - excluded).abs().max()),
    }


def means_errors() -> dict[str, float]:
    """Over several chunks and tiles, with strides and a token whose reference overflows, against torch's route."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(90, 130, generator=generator).bfloat16()[::2]
    weight = (torch.randn(300, 130, generator=generator) * 0.3).bfloat16()
    hidden[3] *= 30  # log p_y far below -108 for most targets
    targets = torch.randint(300, (90,), generator=generator)[::2]
    index = torch.randint(4, (90,), generator=generator)[::2]  # of 5 responses: one has no token

    def means(name: str) -> torch.Tensor:
        return gradient_activation_means(
            hidden, weight.t().contiguous().t(), targets, index, num_responses=5, signal=name, logit_scale=0.9
        )

    truths = {name: means(name) for name in ("gradient-activation", "gradient")}

    def with_triton(hidden: torch.Tensor, head: Head, *_: Any) -> head_module.Plan:
        plan = make_plan(hidden, head, Budget(chunk_tokens=16, precision="storage"))
        return plan._replace(triton=True, tile_rows=128)

    vectors_module.make_plan = with_triton
    # A CPU rounds the products to bfloat16: here they are float32, as on a GPU.
    head_module.product = lambda a, b, plan, out=None: torch.mm(a.float(), b.float(), out=out)
    errors = {}
    for name, truth in truths.items():
        found = means(name)
        assert not found[4].any()
        cosines = (unit_rows(found).double() * unit_rows(truth).double()).sum(-1)[:4]
        errors[name] = float((1 - cosines).max())
        lengths, expected = found.norm(dim=-1), truth.norm(dim=-1)
        errors[f"{name}, length"] = float((lengths - expected).abs().max() / expected.max())
    return errors


FLOAT, WIDE, INDEX = "*fp32", "*fp64", "*i64"
SUMS = [FLOAT, FLOAT, FLOAT, "*bf16", INDEX, INDEX, INDEX, WIDE, "i32", "i32", "i32", "fp32"]
EXPONENTIALS = [FLOAT, FLOAT, FLOAT, INDEX, "*bf16", FLOAT, FLOAT, "i32", "fp32"]


def compile_kernels() -> None:
    """For sm_90. Raises if NVIDIA's assembler rejects one."""
    sizes = {"TOKENS": cuda.BLOCK_TOKENS, "WIDTH": cuda.BLOCK_WIDTH}
    warps = {"num_warps": cuda.COLUMN_WARPS}
    for kernel, types, constants, options in (
        (cuda.exponentials_kernel, EXPONENTIALS, {"HAS_BIAS": False, "BLOCK": cuda.BLOCK_COLUMNS}, warps),
        (cuda.exponentials_kernel, EXPONENTIALS, {"HAS_BIAS": True, "BLOCK": cuda.BLOCK_COLUMNS}, warps),
        (cuda.response_sums_kernel, SUMS, {"ACTIVATE": True, **sizes}, {}),
    ):
        signature = dict(zip(kernel.arg_names, [*types, *["constexpr"] * len(constants)], strict=True))
        source = ASTSource(kernel, signature, constexprs=constants)
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


if __name__ == "__main__":
    if "TRITON_INTERPRET" in os.environ:
        print(json.dumps(exponentials_errors() | means_errors()))
    else:
        compile_kernels()
