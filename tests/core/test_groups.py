"""Statistics of groups named by an index, against Python's statistics module, and a shuffle of groups."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import group_deviations, group_sizes, group_standard_deviations, shuffled_groups
from tests.core.conftest import columns, f64, flags


def test_group_deviations_by_hand():
    values, groups = f64(1.0, 10.0, 2.0, 6.0), torch.tensor([4, 1, 4, 4])  # group 4: mean 3; group 1: 10
    assert group_deviations(values, groups).tolist() == [-2.0, 0.0, -1.0, 3.0]
    for masked in (2.0, math.nan, math.inf, -math.inf):  # without it the mean of group 4 is 3.5
        found = group_deviations(f64(1.0, 10.0, masked, 6.0), groups, flags("1101"))
        assert found.tolist() == [-2.5, 0.0, 0.0, 2.5]


@given(rows=st.lists(st.tuples(st.floats(-1e3, 1e3), st.sampled_from([-3, 0, 1, 2**62]), st.booleans()), max_size=20))
def test_group_statistics_agree_with_pythons(rows):
    values, groups, mask = columns(rows, torch.float64, torch.long, torch.bool)
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


GROUPS = st.lists(st.integers(-5, 5), max_size=20).map(lambda groups: torch.tensor(groups, dtype=torch.long))


@given(groups=GROUPS, seed=st.integers(0, 99), order=st.randoms(use_true_random=False))
def test_shuffled_groups_are_a_cycle_without_fixed_points(groups, seed, order):
    found = shuffled_groups(groups, torch.Generator().manual_seed(seed))
    step = dict(zip(groups.tolist(), found.tolist(), strict=True))
    rows = groups.tolist() * 2
    order.shuffle(rows)
    again = shuffled_groups(torch.tensor(rows, dtype=torch.long), torch.Generator().manual_seed(seed))
    assert again.tolist() == [step[group] for group in rows]
    if step:
        visited, here = [], next(iter(step))
        while here not in visited:
            visited.append(here)
            here = step[here]
        assert set(visited) == set(step)
        assert len(step) == 1 or all(step[g] != g for g in step)
