"""Compiles the Triton kernels for sm_90 without a GPU and prints their registers and spills as JSON."""

import json
import re
import subprocess
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from gar.core import cuda

FLOAT, WIDE, INDEX = "*fp32", "*fp64", "*i64"
SUMS = [FLOAT, FLOAT, FLOAT, "*bf16", INDEX, INDEX, INDEX, WIDE, "i32", "i32", "i32", "fp32"]
EXPONENTIALS = [FLOAT, FLOAT, FLOAT, INDEX, "*bf16", FLOAT, FLOAT, "i32", "fp32"]
KERNELS = {
    "exponentials_kernel": (cuda.exponentials_kernel, EXPONENTIALS, {"HAS_BIAS": False, "BLOCK": cuda.BLOCK_COLUMNS}),
    "exponentials_kernel, bias": (
        cuda.exponentials_kernel,
        EXPONENTIALS,
        {"HAS_BIAS": True, "BLOCK": cuda.BLOCK_COLUMNS},
    ),
    "response_sums_kernel": (
        cuda.response_sums_kernel,
        SUMS,
        {"ACTIVATE": True, "TOKENS": cuda.BLOCK_TOKENS, "WIDTH": cuda.BLOCK_WIDTH},
    ),
}


def resources(ptx: str) -> dict[str, int]:
    """What NVIDIA's assembler says about a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        said = subprocess.run(
            [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", source, "-o", source.with_suffix(".cubin")],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", said)
    return {
        "registers": int(re.findall(r"Used (\d+) registers", said)[0]),
        "spill_bytes": sum(map(int, spills)),
    }


if __name__ == "__main__":
    found = {}
    for name, (kernel, types, constants) in KERNELS.items():
        signature = dict(zip(kernel.arg_names, [*types, *["constexpr"] * len(constants)], strict=True))
        source = ASTSource(kernel, signature, constexprs=constants)
        options = {"num_warps": cuda.COLUMN_WARPS} if kernel is cuda.exponentials_kernel else {}
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        found[name] = resources(compiled.asm["ptx"])
    print(json.dumps(found))
