"""Two Triton kernels around the products with W on a GPU. `head` and `closed_form` do the same in torch.

The first runs between the products: exponentials without the target, summed in float32 and stored in bfloat16, with one
read and one write of the logits. The second follows them: the closed form, and float64 sums in a fixed order.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from gar.core.arguments import Head
from gar.core.closed_form import SoftmaxSums

BLOCK_COLUMNS, COLUMN_WARPS = 4096, 8
BLOCK_TOKENS, BLOCK_WIDTH = 16, 128


def exponentials_into(
    raw: Tensor,
    columns: Tensor,
    reference: Tensor,
    slope: float,
    bias: Tensor | None,
    total: Tensor,
    at_target: Tensor,
) -> Tensor:
    """`exp(slope * (raw + bias) - reference)` in bfloat16, 0 at the target. Adds to `total` and `at_target`.

    `raw` is W h of a tile, contiguous. `columns` are the targets' columns, out of range if another tile has them. The
    sums do not see the rounding to bfloat16.
    """
    tokens, rows = raw.shape
    exponentials = torch.empty(tokens, rows, dtype=torch.bfloat16, device=raw.device)
    cast(Any, exponentials_kernel)[(tokens,)](
        raw, raw if bias is None else bias, reference, columns, exponentials, total, at_target, rows, slope,
        HAS_BIAS=bias is not None, BLOCK=BLOCK_COLUMNS, num_warps=COLUMN_WARPS,
    )  # in the order of the kernel's signature # fmt: skip
    return exponentials


def add_response_sums(
    sums: Tensor, chunk: SoftmaxSums, activations: Tensor | None, head: Head, targets: Tensor, response_index: Tensor
) -> None:
    """Add `sum_t (1 - p_y) (others_t - slope W_y) * h_t` of each response to `sums`, in the order of tokens.

    `sums` is float64. `activations` are h, None for the kind "gradient". The head has no soft-cap.
    """
    responses, width = sums.shape
    targets, activations = targets.contiguous(), None if activations is None else activations.contiguous()
    order = torch.argsort(response_index, stable=True)
    ends = torch.bincount(response_index, minlength=responses).cumsum(0)
    grid = (responses, triton.cdiv(width, BLOCK_WIDTH))
    cast(Any, response_sums_kernel)[grid](
        chunk.complement, chunk.others, chunk.others if activations is None else activations, head.weight, targets,
        order, ends, sums, width, head.weight.stride(0), head.weight.stride(1), head.slope,
        ACTIVATE=activations is not None, TOKENS=BLOCK_TOKENS, WIDTH=BLOCK_WIDTH,
    )  # in the order of the kernel's signature # fmt: skip


@triton.jit
def exponentials_kernel(
    raw_ptr, bias_ptr, reference_ptr, column_ptr, out_ptr, total_ptr, at_target_ptr, rows, slope,
    HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # arguments, then constants # fmt: skip
    """One program per token reads the token's row of the tile."""
    token = tl.program_id(0).to(tl.int64)
    reference = tl.load(reference_ptr + token)
    column = tl.load(column_ptr + token)
    in_tile = (column >= 0) & (column < rows)
    logit = tl.load(raw_ptr + token * rows + column, mask=in_tile, other=-float("inf"))
    if HAS_BIAS:
        logit += tl.load(bias_ptr + column, mask=in_tile, other=0.0)
    excluded = tl.where(in_tile, tl.exp(logit * slope - reference), 0.0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, rows, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < rows
        logits = tl.load(raw_ptr + token * rows + columns, mask=inside, other=-float("inf"))
        if HAS_BIAS:
            logits += tl.load(bias_ptr + columns, mask=inside, other=0.0)
        value = tl.exp(logits * slope - reference)
        value = tl.where(inside & (columns != column), value, 0.0)
        total += value
        tl.store(out_ptr + token * rows + columns, value.to(tl.bfloat16), mask=inside)
    tl.store(total_ptr + token, tl.load(total_ptr + token) + tl.sum(total))
    tl.store(at_target_ptr + token, tl.load(at_target_ptr + token) + excluded)


@triton.jit
def response_sums_kernel(
    complement_ptr, others_ptr, hidden_ptr, weight_ptr, target_ptr, order_ptr, ends_ptr, sums_ptr,
    width, weight_row, weight_column, slope,
    ACTIVATE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
):  # arguments, then constants # fmt: skip
    """One program per response and block of dimensions adds up the response's tokens."""
    response = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    in_width = columns < width
    begin = tl.load(ends_ptr + response - 1, mask=response > 0, other=0)
    end = tl.load(ends_ptr + response)
    total = tl.zeros([WIDTH], dtype=tl.float64)
    for start in range(begin, end, TOKENS):
        places = start + tl.arange(0, TOKENS)
        inside = places < end
        tokens = tl.load(order_ptr + places, mask=inside, other=0)
        both = inside[:, None] & in_width[None, :]
        at = tokens[:, None] * width + columns[None, :]
        targets = tl.load(target_ptr + tokens, mask=inside, other=0)
        rows = targets[:, None] * weight_row + columns[None, :] * weight_column
        gradient = tl.load(others_ptr + at, mask=both, other=0.0)
        gradient -= slope * tl.load(weight_ptr + rows, mask=both, other=0.0).to(tl.float32)
        gradient *= tl.load(complement_ptr + tokens, mask=inside, other=0.0)[:, None]
        if ACTIVATE:
            gradient *= tl.load(hidden_ptr + at, mask=both, other=0.0)
        total += tl.sum(gradient.to(tl.float64), axis=0)
    place = sums_ptr + response * width + columns
    tl.store(place, tl.load(place, mask=in_width, other=0.0) + total, mask=in_width)
