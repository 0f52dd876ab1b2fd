"""What must not change a gradient-activation vector: sizes, chunks, tiles, memory layout, surroundings."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import gradient_activation_means
from gar.core import head as head_module
from tests.core.conftest import autograd_means, make_case, unit_vectors

# Cases are float64, so that everything but the output's rounding (6e-8) is far below this.
SAME = {"rtol": 1e-6, "atol": 1e-7}
OPTIONS = st.fixed_dictionaries(
    {
        "signal": st.sampled_from(["gradient-activation", "gradient", "hidden"]),
        "activation_threshold": st.sampled_from([0.0, 0.05, 0.5, 1.0]),
        "keep_fraction": st.sampled_from([1.0, 0.7, 0.25, [0.3, 1.0, 0.5, 0.01, 0.8]]),
        "logit_softcap": st.sampled_from([None, 3.0]),
    }
)
CASES = st.fixed_dictionaries(
    {
        "tokens": st.integers(1, 30),
        "vocab": st.integers(2, 40),
        "responses": st.integers(1, 5),
        "seed": st.integers(0, 2**20),
        "peak": st.sampled_from([0.1, 1.0, 5.0]),
    }
)


@given(sizes=CASES, options=OPTIONS, chunk_tokens=st.integers(1, 31), tile_rows=st.integers(1, 41))
def test_gradient_activation_means_of_any_size_chunk_and_tile_agree_with_autograd(
    sizes, options, chunk_tokens, tile_rows
):
    case = make_case(**sizes)
    case = case._replace(weight=case.weight.float())  # so that it is read in tiles
    truth = autograd_means(case, num_responses=5, **options).float()
    if isinstance(options["keep_fraction"], list):
        options = options | {"keep_fraction": torch.tensor(options["keep_fraction"])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_module, "_CPU_TILE", tile_rows)
        found = gradient_activation_means(*case, num_responses=5, chunk_tokens=chunk_tokens, **options)
    torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-10)


@given(sizes=CASES, exponent=st.integers(-8, 8))
def test_gradient_activation_means_keep_their_value_when_scale_moves_from_hidden_to_weight(sizes, exponent):
    """Same logits; the gradient shrinks by c, u = gradient * h stays, to the last bit as c is a power of two."""
    case = make_case(**sizes)
    moved = case._replace(hidden=case.hidden * 2.0**exponent, weight=case.weight * 2.0**-exponent)
    expected = gradient_activation_means(*case, num_responses=5)
    assert torch.equal(gradient_activation_means(*moved, num_responses=5), expected)
    raw = gradient_activation_means(*case, num_responses=5, signal="gradient")
    assert torch.equal(gradient_activation_means(*moved, num_responses=5, signal="gradient"), raw * 2.0**-exponent)


def test_gradient_activation_vectors_accept_any_memory_layout():
    case = make_case()
    expected = unit_vectors(*case, num_responses=4)
    transposed = case.weight.T.contiguous().T  # strides (1, vocab), as a head stored [hidden, vocab] has
    strided = torch.stack([case.hidden, case.hidden + 1], dim=-1)[..., 0]
    every_second = torch.stack([case.target_ids, case.target_ids * 0], dim=-1)[:, 0]
    assert not any(tensor.is_contiguous() for tensor in (transposed, strided, every_second))
    found = unit_vectors(strided, transposed, every_second, case.response_index, num_responses=4)
    torch.testing.assert_close(found, expected, **SAME)


@pytest.mark.parametrize("keep_fraction", [1.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_activation_vectors_ignore_an_autocast_around_them(dtype, keep_fraction):
    case = make_case()
    case = case._replace(hidden=case.hidden.to(dtype), weight=case.weight.to(dtype))
    expected = unit_vectors(*case, num_responses=4, keep_fraction=keep_fraction)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(unit_vectors(*case, num_responses=4, keep_fraction=keep_fraction), expected)
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("signal", ["gradient-activation", "gradient", "hidden"])
def test_gradient_activation_vectors_keep_no_graph_and_leave_their_arguments_alone(signal):
    case = make_case()
    copies = [tensor.clone() for tensor in case]
    bias = torch.ones(37, dtype=torch.float64, requires_grad=True)
    hidden, weight = case.hidden.requires_grad_(), case.weight.requires_grad_()
    with torch.enable_grad():
        found = unit_vectors(
            *case, num_responses=4, bias=bias, signal=signal, logit_softcap=2.0, activation_threshold=0.5
        )
    assert not found.requires_grad
    assert weight.grad is hidden.grad is bias.grad is None
    assert all(torch.equal(now, before) for now, before in zip(case, copies, strict=True))
    assert bias.eq(1).all()
