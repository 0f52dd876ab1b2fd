"""Speed of the closed form for an LM head, compared with other ways to form the same vectors.

    python benchmarks/head.py [--shape 1024x151936] [--dtype float32] [--tokens 512] [--rounds 3] [--device cpu]
        [--ways "ours" "autograd"]

All ways get the same hidden states, targets and head, with a random peaked softmax, on one thread, interleaved
(A B C A B C):

* two products: `h W^T` and `P W` and nothing else, a lower bound for any exact way without logits;
* ours: `gradient_activation_means`, in the precision it chooses, and in the other one for a bfloat16 head. On a CPU
  also with hidden states scaled so that a token's logits span 76 or 150 and the smallest exponentials underflow.
* autograd: a loop over responses, cross-entropy of all logits and a backward pass to the hidden states. With dW it also
  computes the head's gradient, as a released implementation does for an untied head;
* torch: `F.linear_cross_entropy` with a chunk, then its gradient. Liger, CCE and QuACK where they are installed (CUDA).

Prints CPU seconds (GPU time on CUDA), so that other load on the machine matters little, ratios within a round, the
memory beyond the arguments (each way in a separate process), and 1 - cos against float64.
Writes results/head-DEVICE.json after each shape and type, and keeps the results of earlier runs on the same machine.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from common import in_a_process, machine, peak_memory, print_rows, shown, spread, write_json
from torch import Tensor

from gar.core import cpu_has_bfloat16_products, gradient_activation_means

SHAPES = {"256x4096": 4096, "576x49152": 512, "1024x151936": 512, "2560x151936": 256, "4096x151936": 256}
"""Width x vocabulary, and how many tokens on a CPU. A GPU takes 16 times as many."""

RESPONSES = 4
CHUNK = 256
CHECKED_TOKENS = 64
BARE, OURS = "two products", "ours"
SPANS = (76, 150)


class Case(NamedTuple):
    """Positional arguments of `gradient_activation_means`."""

    hidden: Tensor
    weight: Tensor
    targets: Tensor
    index: Tensor


def make_case(shape: str, dtype: torch.dtype, device: str, tokens: int) -> Case:
    """A head with a peaked softmax, and hidden states under which some targets are likely and some are not."""
    width, vocab = map(int, shape.split("x"))
    generator = torch.Generator(device).manual_seed(0)
    weight = torch.randn(vocab, width, generator=generator, device=device).mul_(3 / width**0.5)
    targets = torch.randint(vocab, (tokens,), generator=generator, device=device)
    sureness = torch.rand(tokens, 1, generator=generator, device=device) * 4
    hidden = torch.randn(tokens, width, generator=generator, device=device) + sureness * weight[targets]
    index = torch.arange(tokens, device=device) * RESPONSES // tokens
    return Case(hidden.to(dtype), weight.to(dtype), targets, index)


def ours(case: Case, precision: str = "auto") -> Tensor:
    return gradient_activation_means(*case, num_responses=RESPONSES, precision=precision)


@torch.no_grad()
def ours_with_span(case: Case, span: float) -> Tensor:
    logits = case.hidden[:4].float() @ case.weight.float().T
    return ours(case._replace(hidden=case.hidden * (span / (logits.amax(-1) - logits.amin(-1)).mean())))


@torch.no_grad()
def two_products(case: Case) -> Tensor:
    """Both products in chunks, as fast as possible. The result has no meaning."""
    total = torch.zeros_like(case.hidden[0])
    for rows in torch.arange(len(case.hidden), device=case.hidden.device).split(chunk_of(case)):
        total += ((case.hidden[rows] @ case.weight.T) @ case.weight).sum(0)
    return total


def autograd(case: Case, *, head_gradient: bool) -> Tensor:
    weight = case.weight.detach().requires_grad_(head_gradient)
    means = []
    for response in range(RESPONSES):
        rows = case.index == response
        hidden = case.hidden[rows].requires_grad_()
        loss = F.cross_entropy(F.linear(hidden, weight).float(), case.targets[rows], reduction="sum")
        gradient, *_ = torch.autograd.grad(loss, [hidden, weight] if head_gradient else [hidden])
        means.append((gradient.float() * hidden.detach().float()).mean(0))
    return torch.stack(means)


def torch_fused(case: Case) -> Tensor:
    hidden = case.hidden.detach().requires_grad_()
    loss = F.linear_cross_entropy(  # from torch 2.13
        hidden,
        case.weight,
        case.targets,
        reduction="sum",
        options=torch.nn.LinearCrossEntropyOptions(batch_chunk_size=chunk_of(case), chunking_method=None),
    )
    (gradient,) = torch.autograd.grad(loss, hidden)
    return response_means(gradient, case)


def liger(case: Case) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    hidden = case.hidden.detach().requires_grad_()
    loss = liger_fused_linear_cross_entropy(hidden, case.weight, case.targets, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, hidden)
    return response_means(gradient, case)


def cce(case: Case) -> Tensor:
    from cut_cross_entropy import linear_cross_entropy

    hidden = case.hidden.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(linear_cross_entropy(hidden, case.weight, case.targets, reduction="sum"), hidden)
    return response_means(gradient, case)


def quack(case: Case) -> Tensor:
    from quack.linear_cross_entropy import scaled_exp_linear_cross_entropy_fwd  # Hopper alone

    _, gradient, _ = scaled_exp_linear_cross_entropy_fwd(
        case.hidden, case.weight, case.targets, chunk_of(case), need_dw=False
    )
    return response_means(gradient[: len(case.hidden)], case)  # its rows are padded to whole tiles


def response_means(gradient: Tensor, case: Case) -> Tensor:
    sums = torch.zeros(RESPONSES, gradient.shape[1], dtype=torch.float64, device=gradient.device)
    sums.index_add_(0, case.index, gradient.double() * case.hidden.double())
    return (sums / torch.bincount(case.index, minlength=RESPONSES)[:, None]).float()


def chunk_of(case: Case) -> int:
    return CHUNK if case.hidden.device.type == "cpu" else 4 * CHUNK


def all_ways(case: Case) -> dict[str, Callable[[Case], Tensor]]:
    """The ways that run here. bfloat16 products are left out on a CPU without them, where they take minutes."""
    ways: dict[str, Callable[[Case], Tensor]] = {}
    slow = case.hidden.dtype == torch.bfloat16 and not has_fast_bfloat16(case.hidden.device)
    if slow:
        ways["two products, float32"] = lambda case: two_products(Case(*(_widened(t) for t in case)))
    else:
        ways[BARE] = two_products
    ways[OURS] = ours
    if case.weight.dtype == torch.bfloat16 and not slow:
        ways[f"{OURS}, float32"] = lambda case: ours(case, "float32")
    if not case.hidden.is_cuda:
        ways |= {f"{OURS}, span {span}": partial(ours_with_span, span=span) for span in SPANS}
    ways["autograd"] = lambda case: autograd(case, head_gradient=False)
    ways["autograd with dW"] = lambda case: autograd(case, head_gradient=True)
    if hasattr(F, "linear_cross_entropy"):
        ways["torch"] = torch_fused
    if case.hidden.is_cuda:
        ways |= {"Liger": liger, "CCE": cce, "QuACK": quack}
    return ways


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def has_fast_bfloat16(device: torch.device) -> bool:
    return device.type != "cpu" or cpu_has_bfloat16_products()


def seconds(way: Callable[[Case], Tensor], case: Case) -> float:
    if not case.hidden.is_cuda:
        start = time.process_time()
        way(case)
        return time.process_time() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    way(case)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000


def disagreement(way: Callable[[Case], Tensor], case: Case) -> float:
    """Largest 1 - cos of a response with float64, as half the squared distance of unit vectors."""
    every = slice(None, None, max(1, len(case.index) // CHECKED_TOKENS))
    few = case._replace(hidden=case.hidden[every], targets=case.targets[every], index=case.index[every])
    exact = few._replace(hidden=few.hidden.double(), weight=few.weight.double())
    truth = F.normalize(ours(exact).double(), dim=-1)
    return float((F.normalize(way(few).double(), dim=-1) - truth).square().sum(-1).max() / 2)


def measure(
    shape: str, dtype: torch.dtype, device: str, tokens: int, rounds: int, only: Sequence[str] = ()
) -> dict[str, Any]:
    case = make_case(shape, dtype, device, tokens)
    ways, times, missing = all_ways(case), {}, {}
    ways = {name: way for name, way in ways.items() if not only or name in only or name.startswith(BARE)}
    for name, way in list(ways.items()):
        try:
            way(case) if case.hidden.is_cuda else way(make_case("64x1000", dtype, device, 32))  # warm-up
        except Exception as error:  # from another package: listed below the table, and the others continue
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            del ways[name]
    times = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(seconds(way, case))
    bare = next(name for name in ways if name.startswith(BARE))
    return {
        "shape": shape, "dtype": str(dtype).removeprefix("torch."), "tokens": tokens, "responses": RESPONSES,
        "rounds": rounds,
        "seconds": {name: statistics.median(values) for name, values in times.items()},
        "time_of_two_products_over_its_own": {
            name: spread([b / a for a, b in zip(values, times[bare], strict=True)]) for name, values in times.items()
        },
        "seconds_over_ours": {
            name: spread([a / b for a, b in zip(values, times[OURS], strict=True)])
            for name, values in times.items() if name.startswith(f"{OURS},") and OURS in times
        },
        "one_minus_cosine": {
            name: disagreement(way, case)
            for name, way in ways.items() if not name.startswith(BARE) and "span" not in name
        },
        "peak_bytes": {
            name: peak_memory(partial(way, case), device) if device == "cuda"
            else in_a_process(own_memory, name, shape, dtype, device, tokens)
            for name, way in ways.items()
        },
        "not_run": missing,
    }  # fmt: skip


def tokens_of(shape: str, dtype: torch.dtype, device: str) -> int:
    tokens = SHAPES[shape] * (16 if device == "cuda" else 1)
    return tokens // 32 if dtype == torch.bfloat16 and not has_fast_bfloat16(torch.device(device)) else tokens


def own_memory(name: str, shape: str, dtype: torch.dtype, device: str, tokens: int) -> int | None:
    """Memory of a way beyond its arguments, on one thread."""
    torch.set_num_threads(1)
    case = make_case(shape, dtype, device, tokens)
    way = all_ways(case)[name]
    way(make_case("64x1000", dtype, device, 32))
    return peak_memory(lambda: way(case), device)


def print_table(result: dict[str, Any]) -> None:
    rows = []
    for name, median in result["seconds"].items():
        error, memory = result["one_minus_cosine"].get(name), result["peak_bytes"][name]
        ratio = shown(result["time_of_two_products_over_its_own"][name])
        memory, error = "-" if memory is None else f"{memory / 1e6:.0f}", "-" if error is None else f"{error:.0e}"
        rows.append([name, f"{median:.3g}", ratio, memory, error])
    headings = ["way", "seconds", "two products' time / its own", "MB beside arguments", "1 - cos"]
    notes = [f"{name}: {shown(ratio, '.3f')} of ours' seconds" for name, ratio in result["seconds_over_ours"].items()]
    notes += [f"{name} did not run: {reason}" for name, reason in result["not_run"].items()]
    print_rows(f"{result['shape']}, {result['dtype']}, {result['tokens']} tokens", headings, rows, notes)


def keep(result: dict[str, Any], out: Path) -> None:
    """Write a result over an earlier one of the same shape and type. Results of other machines are dropped."""
    before = json.loads(out.read_text()) if out.exists() else {}
    results = before.get("results", []) if before.get("machine") == machine() else []
    others = [old for old in results if (old["shape"], old["dtype"]) != (result["shape"], result["dtype"])]
    ordered = sorted([*others, result], key=lambda r: (list(SHAPES).index(r["shape"]), r["dtype"] != "float32"))
    write_json(out, {"results": ordered, "machine": machine()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[*SHAPES, "all"], default="all", help="width x vocabulary")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], action="append", help="repeat for several")
    parser.add_argument("--tokens", type=int, help="default: by shape, type and device")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--ways", nargs="+", default=(), help="only these, by name, and the two products")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dtypes = [getattr(torch, name) for name in arguments.dtype or ["float32", "bfloat16"]]
    out = arguments.out or Path(f"results/head-{'forms-' if arguments.ways else ''}{arguments.device}.json")
    for shape in SHAPES if arguments.shape == "all" else [arguments.shape]:
        for dtype in dtypes:
            tokens = arguments.tokens or tokens_of(shape, dtype, arguments.device)
            result = measure(shape, dtype, arguments.device, tokens, arguments.rounds, arguments.ways)
            print_table(result)
            keep(result, out)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
