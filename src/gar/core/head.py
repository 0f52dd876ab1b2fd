"""Sums over the vocabulary of an LM head, for a chunk of tokens and a tile of W's rows at a time.

The logits never exist all at once. `Plan` sets the sizes of chunk and tile from the memory limit, and the dtype of the
two matrix products. It changes results only by rounding.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from math import exp
from typing import Any, NamedTuple, cast, get_args

import torch
from torch import Tensor
from torch.nn.functional import threshold

from gar.core.arguments import Budget, Head, Precision, check_choice
from gar.core.ranks import Ranks

REFERENCE_MARGIN = 20.0
"""Exponentials are taken relative to z_y + this margin, which saves the pass for the maximum."""

_LOWEST_EXPONENT = -82.0
"""Exponents below this give 0 on a CPU. A 1 - p_y below exp(-62) is negligible. Denormals slow products up to 150 x."""

_LARGE_HEAD = 2**24
"""Smaller heads always use float32 products, which cost little."""

_CPU_TOKENS, _CPU_TILE = 256, 2048
"""Tokens and rows at a time: their float32 logits fit a core's cache. Fewer tokens would read W more often."""

_MANY_TOKENS, _SMALLEST_TILE = 1024, 128
"""Tokens on a GPU, and on a CPU with bfloat16 products, where each chunk widens all tiles of W once."""


class Plan(NamedTuple):
    """Sizes and dtypes of the work.

    Attributes:
        dtype: Dtype of logits, softmax and sums over the vocabulary.
        products: Dtype of the matrix products' inputs. Their results have `dtype`.
        chunk_tokens: Tokens at one time.
        tile_rows: Rows of W at one time.
        triton: Whether Triton kernels run the passes around the products.
    """

    dtype: torch.dtype
    products: torch.dtype
    chunk_tokens: int
    tile_rows: int
    triton: bool = False


def make_plan(hidden: Tensor, head: Head, budget: Budget, vocab_size: int | None = None) -> Plan:
    """The plan for these tokens, this head, this device and this budget.

    `head` may be this rank's rows. `vocab_size` then counts the rows of the whole head.
    """
    memory_bytes, chunk_tokens, precision = budget
    check_choice("precision", precision, get_args(Precision))
    if chunk_tokens is not None and chunk_tokens < 1:
        raise ValueError(f"chunk_tokens must be at least 1 or None, got {chunk_tokens}")
    on_cpu = hidden.device.type == "cpu"
    rows = len(head.weight) if vocab_size is None else vocab_size
    dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    products = dtype
    # float16 is left out: exp(z_v - z_y - 20) underflows there.
    if dtype == torch.float32 and head.weight.dtype == torch.bfloat16 and precision != "float32":
        is_fast = not on_cpu or cpu_has_bfloat16_products()
        narrow = precision == "storage" or (is_fast and rows * hidden.shape[1] >= _LARGE_HEAD)
        products = torch.bfloat16 if narrow else dtype
    widens = head.weight.dtype != products or (on_cpu and products != dtype)
    has_triton = hidden.device.type == "cuda" and importlib.util.find_spec("triton") is not None
    triton = products != dtype and head.logit_softcap is None and has_triton
    chunk = chunk_tokens or (_CPU_TOKENS if on_cpu and products == dtype else _MANY_TOKENS)
    tile = max(1, min(_CPU_TILE, rows) if on_cpu else rows)
    while (needed := _bytes(chunk, tile, head, dtype, products, widens)) > memory_bytes:
        if tile > _CPU_TILE:
            tile = max(_CPU_TILE, tile // 2 // _SMALLEST_TILE * _SMALLEST_TILE)
        elif chunk > 16:
            chunk //= 2
        elif tile > _SMALLEST_TILE:
            tile //= 2
        elif chunk > 1:
            chunk //= 2
        else:
            raise ValueError(
                f"memory_bytes must be at least {needed} for one token of width {hidden.shape[1]} and {tile} rows of "
                f"the head, got {memory_bytes}"
            )
    return Plan(dtype, products, chunk, tile, triton)


def _bytes(chunk: int, tile: int, head: Head, dtype: torch.dtype, products: torch.dtype, widens: bool) -> int:
    """Temporary memory of a chunk."""
    width = head.weight.shape[1]
    narrow = products.itemsize if products != dtype else 0
    logits = chunk * tile * (dtype.itemsize + narrow) * (3 if head.logit_softcap is not None else 1)
    widened_tile = tile * width * dtype.itemsize if widens else 0
    vectors = chunk * width * (6 * dtype.itemsize + 8)  # h, W_y, their sums and products, and one float64 copy
    return logits + widened_tile + vectors


def exponential_sums(
    h: Tensor, targets: Tensor, head: Head, reference: Tensor, plan: Plan, ranks: Ranks
) -> tuple[Tensor, Tensor, Tensor]:
    """Over v != y: total `sum exp(z_v - ref)` and weighted `sum exp(z_v - ref) slope_v W_v`, and `exp(z_y - ref)`.

    Args:
        h: One chunk, [tokens, hidden], in `plan.dtype`.
        targets: Token ids y, as rows of `head.weight`. An id out of range excludes no row.
        head: The LM head, or this rank's rows of it.
        reference: [tokens].
        plan: From `make_plan`.
        ranks: The ranks that hold the other rows.

    Returns:
        total [tokens] and at_target [tokens] over all ranks, and weighted [tokens, hidden] of this rank's rows. Total
        is infinite where a sum overflows on any rank.
    """
    total = torch.zeros_like(reference)
    at_target = torch.zeros_like(reference)
    weighted = torch.zeros_like(h)
    h = h.to(plan.products)
    # One buffer serves all tiles: the allocator would keep two or three.
    buffer = h.new_empty(len(h) * min(plan.tile_rows, len(head.weight)), dtype=plan.dtype)
    for start, tile, bias in tiles(head, plan):
        logits = buffer[: len(h) * len(tile)].view(len(h), len(tile))
        if plan.triton:
            from gar.core.cuda import exponentials_into

            product(h, tile.T, plan, out=logits)
            exponentials = exponentials_into(logits, targets - start, reference, head.slope, bias, total, at_target)
        else:
            exponentials, slopes = _exponentials(h, tile, bias, head, reference, plan, out=logits)
            column = (targets - start).clamp(0, len(tile) - 1)[:, None]
            inside = (targets >= start) & (targets < start + len(tile))
            excluded = exponentials.gather(1, column)
            at_target += excluded[:, 0].where(inside, 0.0)
            exponentials.scatter_(1, column, excluded.masked_fill(inside[:, None], 0.0))
            total += exponentials.sum(-1)
            if slopes is not None:
                exponentials *= slopes
        if plan.products == plan.dtype:
            weighted.addmm_(exponentials, tile)
        else:
            narrow = exponentials.to(plan.products)
            # The sums of a tile may be rounded. Logits may not: the exponential would amplify their errors.
            weighted += product(narrow, tile, plan) if h.is_cuda else narrow @ tile
    if head.logit_softcap is None:
        weighted *= head.slope
    total[~weighted.sum(-1).isfinite()] = torch.inf
    total, at_target = ranks.add_parts(torch.stack([total, at_target]))
    return total, at_target, weighted


def _exponentials(
    h: Tensor, tile: Tensor, bias: Tensor | None, head: Head, reference: Tensor, plan: Plan, out: Tensor
) -> tuple[Tensor, Tensor | None]:
    """`exp(z_v - ref)` of a tile, and with a soft-cap the slopes `dz / d(W h)`. May be written into `out`."""
    if plan.products == plan.dtype and head.logit_softcap is None:
        offset = -reference[:, None] if bias is None else head.slope * bias - reference[:, None]
        return _exp(torch.addmm(offset, h, tile.T, alpha=head.slope, out=out)), None
    logits, slopes = logits_of(_raw(h, tile, bias, plan, out), head)
    return _exp(logits.sub_(reference[:, None])), slopes if head.logit_softcap is not None else None


def _exp(exponents: Tensor) -> Tensor:
    """Exponentials in place. On a CPU 0 if they would be denormal, or nearly."""
    if exponents.dtype != torch.float32 or exponents.device.type != "cpu":
        return exponents.exp_()
    return threshold(exponents.clamp_(min=_LOWEST_EXPONENT - 1).exp_(), exp(_LOWEST_EXPONENT), 0.0, inplace=True)


def largest_logits(h: Tensor, head: Head, plan: Plan, ranks: Ranks) -> Tensor:
    """The largest logit of each token on any rank, [tokens]."""
    largest = h.new_full((len(h),), -torch.inf)
    h = h.to(plan.products)
    for _, tile, bias in tiles(head, plan):
        largest = torch.maximum(largest, logits_of(_raw(h, tile, bias, plan), head)[0].amax(-1))
    return ranks.largest(largest)


def logits_of(raw: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    """Logits from `W h + bias`, which may be overwritten, and their slopes `dz / d(W h)`, one each or one for all."""
    if head.logit_softcap is None:
        return raw.mul_(head.slope) if head.slope != 1.0 else raw, raw.new_tensor([head.slope])
    bent = raw.mul_(head.logit_scale / head.logit_softcap).tanh_()
    return bent * (head.logit_softcap / head.temperature), (1.0 - bent.square()) * head.slope


def product(a: Tensor, b: Tensor, plan: Plan, out: Tensor | None = None) -> Tensor:
    """`a @ b` in the dtype of the sums.

    A CPU needs float32 inputs. oneDNN may narrow them back to bfloat16, which is exact: they were widened from it.
    """
    if plan.products == plan.dtype:
        return torch.mm(a, b, out=out)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=plan.dtype, out=out)
    with _float32_products("bf16", cast(Any, torch.backends.mkldnn).matmul):
        return torch.mm(a.to(plan.dtype), b.to(plan.dtype), out=out)


def tiles(head: Head, plan: Plan) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """Tiles of W: first row, rows in the dtype of the products, biases in the dtype of the sums."""
    for start in range(0, len(head.weight), plan.tile_rows):
        rows = slice(start, start + plan.tile_rows)
        yield start, head.weight[rows].to(plan.products), None if head.bias is None else head.bias[rows].to(plan.dtype)


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """Run matrix products in full float32, even if a trainer allows TF32 (CUDA), bfloat16 (CPU) or autocast."""
    backends = (torch.backends.cuda.matmul, cast(Any, torch.backends.mkldnn).matmul)
    with torch.autocast(device.type, enabled=False), _float32_products("ieee", *backends):
        yield


@contextmanager
def _float32_products(precision: str, *backends: Any) -> Iterator[None]:
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = precision
    try:
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value


def _raw(h: Tensor, tile: Tensor, bias: Tensor | None, plan: Plan, out: Tensor | None = None) -> Tensor:
    raw = product(h, tile.T, plan, out)
    return raw if bias is None else raw.add_(bias)


def cpu_has_bfloat16_products() -> bool:
    """Whether this CPU multiplies bfloat16 matrices faster than float32 ones."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # absent in older versions of torch
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
