"""The closed form on a GPU against float64 autograd, up to the heads of Qwen3-4B and Qwen3-8B, and its memory."""

import os

import pytest
import torch

from benchmarks.common import peak_memory
from gar.core import gradient_activation_means
from gar.core.arguments import Budget, Head
from gar.core.head import make_plan
from tests.core.conftest import Case, autograd_means, unit_vectors
from tests.core.test_gradients_precision import RESPONSES, largest_angle, plain_vectors

pytestmark = pytest.mark.gpu

HEADS = {"small": (64, 1000), "1.7B": (2048, 151_936), "4B": (2560, 151_936), "8B": (4096, 151_936)}
REHEARSED = (64, 1000)
DTYPES = {"float64": 1e-12, "float32": 1e-10, "float16": 1e-10, "bfloat16": 1e-5}
"""The largest 1 - cos. Means are float32. A bfloat16 head rounds exponentials to 8 bits if it is large."""


def make_case(head: str, dtype: torch.dtype, device: str, tokens: int = 128) -> Case:
    """A head with a peaked softmax, and hidden states under which some targets are likely."""
    width, vocab = HEADS[head] if device == "cuda" else REHEARSED
    generator = torch.Generator(device).manual_seed(0)
    weight = torch.randn(vocab, width, generator=generator, device=device).mul_(3 / width**0.5)
    targets = torch.randint(vocab, (tokens,), generator=generator, device=device)
    sureness = torch.rand(tokens, 1, generator=generator, device=device) * 4
    hidden = torch.randn(tokens, width, generator=generator, device=device) + sureness * weight[targets]
    index = torch.randint(RESPONSES, (tokens,), generator=generator, device=device)
    return Case(hidden.to(dtype), weight.to(dtype), targets, index)


def truth_of(case: Case, **options) -> torch.Tensor:
    return torch.nn.functional.normalize(autograd_means(case, num_responses=RESPONSES, **options), dim=-1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head", HEADS)
def test_vectors_are_those_of_float64_autograd(device, head, dtype, record_property):
    case = make_case(head, getattr(torch, dtype), device)
    truth = truth_of(case)
    found = unit_vectors(*case, num_responses=RESPONSES)
    assert found.device.type == device
    errors = {"auto": largest_angle(found.cpu(), truth)}
    if dtype == "bfloat16":
        for precision in ("float32", "storage"):
            vectors = unit_vectors(*case, num_responses=RESPONSES, precision=precision)
            errors[precision] = largest_angle(vectors.cpu(), truth)
        errors["plain"] = largest_angle(plain_vectors(case, upcast_logits=True).cpu(), truth)
    record_property("1 - cos", errors)
    assert errors["auto"] <= DTYPES[dtype]
    assert errors.get("float32", 0) <= DTYPES["float32"]
    if dtype == "bfloat16":
        assert max(errors["auto"], errors["storage"]) <= errors["plain"]


SIGNALS = {
    "gradient": {"signal": "gradient"},
    "hidden": {"signal": "hidden"},
    "soft-cap": {"logit_softcap": 5.0},
    "scaled": {"temperature": 0.7, "logit_scale": 0.5},
    "threshold": {"activation_threshold": 0.05},
    "strongest tokens": {"keep_fraction": 0.7},
    "threshold and tokens": {"activation_threshold": 0.05, "keep_fraction": 0.7, "temperature": 1.3},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SIGNALS)
def test_other_signals_are_those_of_float64_autograd(device, name, dtype, record_property):
    case, options = make_case("1.7B", getattr(torch, dtype), device), SIGNALS[name]
    # Norms of 8 bits may put another token among the strongest.
    precision = "float32" if "keep_fraction" in options else "auto"
    found = unit_vectors(*case, num_responses=RESPONSES, precision=precision, **options)
    error = largest_angle(found.cpu(), truth_of(case, **options))
    record_property("1 - cos", error)
    assert error <= DTYPES[dtype]


@pytest.mark.parametrize("precision", ["float32", "storage"])
def test_a_bias_chunks_tiles_and_strides_leave_the_vectors_alone(device, precision, record_property):
    """Several chunks and tiles, with the last of both cut off, a column-major W, a bias, every other token."""
    hidden, weight, targets, index = make_case("4B", torch.bfloat16, device, tokens=400)
    bias = torch.linspace(-2, 2, len(weight), device=device)
    case = Case(hidden[::2], weight.t().contiguous().t(), targets[::2], index[::2])
    budget = {"precision": precision, "bias": bias, "chunk_tokens": 48, "memory_bytes": 2**26}
    found = unit_vectors(*case, num_responses=RESPONSES, **budget)
    error = largest_angle(found.cpu(), truth_of(case, bias=bias))
    record_property("1 - cos", error)
    assert error <= DTYPES["float32" if precision == "float32" else "bfloat16"]


def test_improbable_tokens_are_exact(device, record_property):
    """Their log p_y is far below -108, so their sums overflow and are formed again."""
    case = make_case("1.7B", torch.bfloat16, device)
    case.hidden[:5] *= 20
    found = unit_vectors(*case, num_responses=RESPONSES)
    error = largest_angle(found.cpu(), truth_of(case))
    record_property("1 - cos", error)
    assert error <= DTYPES["bfloat16"]


def test_means_are_equal_in_every_run(device):
    case = make_case("1.7B", torch.bfloat16, device)
    means = [gradient_activation_means(*case, num_responses=RESPONSES) for _ in range(3)]
    assert torch.equal(means[0], means[1])
    assert torch.equal(means[0], means[2])


def test_triton_kernels_compute_what_torch_computes(device, record_property):
    pytest.importorskip("triton", reason="triton is not installed")
    if device == "cpu" and "TRITON_INTERPRET" not in os.environ:
        pytest.skip("without a GPU the kernels run under TRITON_INTERPRET=1")
    from tests.core.kernels import exponentials_errors

    errors = exponentials_errors(device)
    record_property("errors", errors)
    assert errors["exponentials"] <= 2**-7  # bfloat16, which the interpreter truncates
    assert errors["total"] <= 4e-6  # a GPU forms exp(x) as 2^(x log2 e), whose exponent is rounded
    assert errors["at_target"] <= 1e-5


def test_a_large_bfloat16_head_takes_the_kernels(device):
    case = make_case("8B", torch.bfloat16, device)
    plan = make_plan(case.hidden, Head(case.weight), Budget())
    assert plan.triton == (device == "cuda")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("megabytes", [64, 256])
@pytest.mark.parametrize("head", ["4B", "8B"])
def test_memory_beside_the_arguments_is_within_its_limit(device, head, megabytes, dtype, record_property):
    case = make_case(head, getattr(torch, dtype), device, tokens=4096 if device == "cuda" else 128)

    def means() -> None:
        gradient_activation_means(*case, num_responses=RESPONSES, memory_bytes=megabytes * 2**20)

    means()  # the libraries' own buffers stay
    found = peak_memory(means, device)
    if found is None:
        pytest.skip("this kernel does not report peak memory")
    record_property("MiB", round(found / 2**20, 1))
    assert found <= megabytes * 2**20
