"""Properties of all formulas: dtypes, any order and names of groups, exact zeros, no responses, errors."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar import core

VALUES = [1, 0, 1, 1]
ONE_GROUP = torch.zeros(4, dtype=torch.long)


def counts(x: Tensor) -> Tensor:
    """Tokens of each response, from its value."""
    return (x.double().abs() * 7).long() % 4 + 1


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gradient_aligned_bonuses": lambda x, g: core.gradient_aligned_bonuses(torch.ones_like(x).bool(), x, g),
    "group_deviations": core.group_deviations,
    "group_standard_deviations": lambda x, g: core.group_standard_deviations(x, g, ddof=0),
    "group_advantages": lambda x, g: core.group_advantages(x, g, scale="std", ddof=1, eps=1e-6),
    "reinforce_plus_plus_advantages": lambda x, g: core.reinforce_plus_plus_advantages(
        x, counts(x), g, baseline=True, ddof=1, eps=1e-8
    ),
    "novelty_rewards": lambda x, g: core.novelty_rewards(torch.ones_like(x).bool(), x, x * -0.6, g),
}
IN_FLOAT64 = {"group_deviations", "group_standard_deviations"}
DTYPES = [torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_dtype_cuts_a_result_to_whole_numbers(name, dtype):
    """0 and 1 are exact in every dtype, so results differ by no more than the rounding of their own dtype."""
    found = FUNCTIONS[name](torch.tensor(VALUES, dtype=dtype), ONE_GROUP)
    exact = FUNCTIONS[name](torch.tensor(VALUES, dtype=torch.float64), ONE_GROUP)
    expected = torch.float64 if name in IN_FLOAT64 else dtype if dtype.is_floating_point else torch.float32
    assert found.dtype == expected
    assert found.shape == exact.shape
    # Arguments made from x, such as x * -0.6, are rounded once, too: two units in the last place.
    torch.testing.assert_close(found.double(), exact, rtol=2 * torch.finfo(expected).eps, atol=0)


def test_every_function_of_values_is_among_these():
    endings = ("advantages", "rewards", "bonuses", "deviations")
    assert {name for name in core.__all__ if name.endswith(endings)} <= FUNCTIONS.keys()


ROWS = st.lists(st.tuples(st.floats(-10, 10, width=16), st.integers(0, 3)), max_size=20)


@given(rows=ROWS, name=st.sampled_from([*FUNCTIONS]), order=st.randoms(use_true_random=False))
def test_formulas_follow_the_responses_wherever_they_stand(rows, name, order):
    """Neither the order nor the names of groups matter, as for a group gathered from two ranks. Arguments stay."""
    values = torch.tensor([value for value, _ in rows], dtype=torch.float64)
    groups = torch.tensor([group for _, group in rows], dtype=torch.long)
    moved = list(range(len(rows)))
    order.shuffle(moved)
    before, expected = values.clone(), FUNCTIONS[name](values, groups)
    found = FUNCTIONS[name](values[moved], 100 - groups[moved])
    torch.testing.assert_close(found, expected[moved], rtol=1e-9, atol=1e-8)
    assert torch.equal(values, before)
    assert found.shape == (len(rows),)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_formulas_of_equal_values_are_exactly_zero(name):
    """A mean of 16 times 0.1 is not 0.1. The difference must not become an advantage."""
    for size in (1, 2, 3, 7, 16, 39):
        groups = torch.zeros(size, dtype=torch.long)
        for value in (0.1, 1.0 + 1e-9, 1 / 3, -7.3):
            values = torch.full((size,), value, dtype=torch.float64)
            base = 1.0 - 0.6 * values if name == "novelty_rewards" else torch.zeros(size).double()
            assert torch.equal(FUNCTIONS[name](values, groups), base)
            for ddof, eps in ((0, 0.0), (1, 0.0), (1, 1e-6)):
                options = {"ddof": ddof, "eps": eps}
                assert not core.group_advantages(values, groups, scale="std", **options).any()
                arguments = (values, torch.arange(size) + 1, groups)
                assert not core.reinforce_plus_plus_advantages(*arguments, baseline=False, **options).any()
                assert not core.group_standard_deviations(values, groups, ddof=ddof).any()


@pytest.mark.usefixtures("unchecked")
def test_formulas_reject_what_is_not_finite_or_does_not_fit():
    two, three = torch.tensor([0.5, math.nan]).double(), torch.zeros(3, dtype=torch.long)
    for name, function in FUNCTIONS.items():
        if name.startswith("group_") and "deviations" in name:
            continue
        with pytest.raises(ValueError, match="response 1"):
            function(two, three[:2])
        with pytest.raises(ValueError, match="group_index"):
            function(two.nan_to_num(), three)
    x, g = two.nan_to_num(), three[:2]
    right = torch.ones(2, dtype=torch.bool)
    whitened = partial(core.reinforce_plus_plus_advantages, baseline=False, ddof=0, eps=0.0)
    for call, argument in (
        (lambda: core.alignment_scores(torch.ones(3, 2), torch.ones(1, 2)), "anchors"),
        (lambda: core.gradient_aligned_bonuses(right[:1], x, g), "eligible"),
        (lambda: core.gradient_aligned_bonuses(right, x, g, scored=right[:1]), "scored"),
        (lambda: core.gradient_aligned_bonuses(right, x, g, bonus_weight=math.nan), "bonus_weight"),
        (lambda: core.novelty_rewards(right, x, x[:1], g), "penalty"),
        (lambda: core.novelty_scores(torch.tensor([[1.0], [math.inf]]), right, g), "vectors"),
        (lambda: core.novelty_scores(torch.ones(2, 1), right[:1], g), "eligible"),
        (lambda: core.group_advantages(x, g, scale="sd", ddof=0, eps=0.0), "scale='sd'"),
        (lambda: core.group_advantages(x, g, scale="std", ddof=2, eps=0.0), "ddof=2"),
        (lambda: core.group_advantages(x, g, scale="std", ddof=0, eps=math.nan), "eps=nan"),
        (lambda: core.group_advantages(x, g, scale="std", ddof=0, eps=0.0, min_std=-0.1), "min_std=-0.1"),
        (lambda: whitened(x, g - 2, g), "token_counts"),
        (lambda: whitened(x, three, g), "token_counts"),
        (lambda: whitened(x, g + 1, g, ddof=2), "ddof=2"),
        (lambda: whitened(x, g + 1, g, eps=-1e-8), "eps=-1e-08"),
    ):
        with pytest.raises(ValueError, match=argument):
            call()
