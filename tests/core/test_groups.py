"""Statistics of groups named by an index, against Python's own statistics module."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import group_deviations, group_sizes, group_standard_deviations

VALUES = st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(-3, 3), st.booleans()), max_size=20)


def columns(rows: list[tuple[float, int, bool]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    values, groups, mask = zip(*rows, strict=True) if rows else ((), (), ())
    return (
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(groups, dtype=torch.long),
        torch.tensor(mask, dtype=torch.bool),
    )


def test_group_sizes_by_hand():
    groups = torch.tensor([7, -3, 7, 7, 2**62])
    assert group_sizes(groups).tolist() == [3, 1, 3, 3, 1]
    counted = torch.tensor([True, False, False, True, True])
    assert group_sizes(groups, counted).tolist() == [2, 0, 2, 2, 1]


def test_group_deviations_by_hand():
    values = torch.tensor([1.0, 10.0, 2.0, 6.0], dtype=torch.float64)  # group 4: mean 3; group 1: 10
    groups = torch.tensor([4, 1, 4, 4])
    assert group_deviations(values, groups).tolist() == [-2.0, 0.0, -1.0, 3.0]
    # Without the 2 the mean of group 4 is 3.5.
    mask = torch.tensor([True, True, False, True])
    assert group_deviations(values, groups, mask).tolist() == [-2.5, 0.0, 0.0, 2.5]


def test_group_standard_deviations_by_hand():
    values = torch.tensor([1.0, 10.0, 2.0, 6.0], dtype=torch.float64)  # deviations -2, -1, 3: squares sum to 14
    groups = torch.tensor([4, 1, 4, 4])
    population = [math.sqrt(14 / 3), 0.0, math.sqrt(14 / 3), math.sqrt(14 / 3)]
    assert group_standard_deviations(values, groups, ddof=0).tolist() == pytest.approx(population, rel=1e-15)
    bessel = [math.sqrt(7.0), 0.0, math.sqrt(7.0), math.sqrt(7.0)]
    assert group_standard_deviations(values, groups, ddof=1).tolist() == pytest.approx(bessel, rel=1e-15)


@given(rows=VALUES)
def test_group_statistics_agree_with_pythons(rows):
    values, groups, mask = columns(rows)
    sizes, counted_sizes = group_sizes(groups).tolist(), group_sizes(groups, mask).tolist()
    deviations, counted_deviations = group_deviations(values, groups), group_deviations(values, groups, mask)
    population = group_standard_deviations(values, groups, ddof=0).tolist()
    bessel = group_standard_deviations(values, groups, ddof=1).tolist()
    for i, (value, group, counts) in enumerate(rows):
        mine = [v for v, g, _ in rows if g == group]
        counted = [v for v, g, m in rows if g == group and m]
        # float64 of values up to 1000, summed over 20: a few times 1e-13
        assert sizes[i] == len(mine)
        assert counted_sizes[i] == len(counted)
        assert deviations[i].item() == pytest.approx(value - statistics.fmean(mine), abs=1e-11)
        expected = value - statistics.fmean(counted) if counts else 0.0
        assert counted_deviations[i].item() == pytest.approx(expected, abs=1e-11)
        assert population[i] == pytest.approx(statistics.pstdev(mine), rel=1e-9, abs=1e-11)
        assert bessel[i] == pytest.approx(statistics.stdev(mine) if len(mine) > 1 else 0.0, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_group_deviations_do_not_read_what_is_masked(value):
    values = torch.tensor([1.0, value, 3.0, value], dtype=torch.float64)
    mask = torch.tensor([True, False, True, False])
    assert group_deviations(values, torch.tensor([0, 0, 0, 1]), mask).tolist() == [-1.0, 0.0, 1.0, 0.0]
