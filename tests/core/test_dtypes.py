"""What the formulas hand back: the dtype that they were given, and a floating-point one where that is none."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gar import core
from gar.core.arguments import as_given

VALUES = [1, 0, 1, 1]
GROUPS = torch.zeros(4, dtype=torch.long)
RIGHT = torch.ones(4, dtype=torch.bool)
COUNTS = torch.tensor([3, 1, 2, 5])

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gradient_aligned_bonuses": lambda x: core.gradient_aligned_bonuses(RIGHT, x, GROUPS),
    "group_deviations": lambda x: core.group_deviations(x, GROUPS),
    "group_standard_deviations": lambda x: core.group_standard_deviations(x, GROUPS, ddof=0),
    "group_advantages": lambda x: core.group_advantages(x, GROUPS, scale="std", ddof=0, eps=1e-6),
    "reinforce_plus_plus_advantages": lambda x: core.reinforce_plus_plus_advantages(
        x, COUNTS, GROUPS, baseline=True, ddof=1, eps=1e-8
    ),
    "novelty_rewards": lambda x: core.novelty_rewards(RIGHT, x, x * -0.6, GROUPS, novelty_weight=0.3),
}
IN_FLOAT64 = {"group_deviations", "group_standard_deviations"}
DTYPES = [torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_dtype_cuts_a_result_to_whole_numbers(name, dtype):
    """0 and 1 are exact in every dtype, so results differ by no more than the rounding of their own dtype."""
    found = FUNCTIONS[name](torch.tensor(VALUES, dtype=dtype))
    exact = FUNCTIONS[name](torch.tensor(VALUES, dtype=torch.float64))
    expected = torch.float64 if name in IN_FLOAT64 else dtype if dtype.is_floating_point else torch.float32
    assert found.dtype == expected
    assert found.shape == exact.shape
    # The arguments made from x above (x * 0.5 and the like) are rounded once, too: two units in the last place.
    torch.testing.assert_close(found.double(), exact, rtol=2 * torch.finfo(expected).eps, atol=0)


def test_every_function_of_values_is_among_these():
    made_from_values = {name for name in core.__all__ if name.endswith(("advantages", "rewards", "bonuses", "returns"))}
    made_from_values |= {name for name in core.__all__ if name.endswith("deviations")}
    assert made_from_values <= FUNCTIONS.keys()


def test_integers_become_torchs_default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert as_given(torch.tensor([0.5]), torch.tensor([True])).dtype == torch.float64
    finally:
        torch.set_default_dtype(before)


def test_nothing_counted_is_zero_in_a_float_dtype():
    none = torch.zeros(2, dtype=torch.long)
    rewards = torch.tensor([3, 4])
    found = core.reinforce_plus_plus_advantages(rewards, none, none, baseline=False, ddof=0, eps=0.0)
    assert found.dtype == torch.float32
    assert found.tolist() == [0.0, 0.0]
