"""The controls' similarities: no group keeps its anchor, random directions are even, lengths compare by hand."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import (
    alignment_scores,
    length_closeness,
    random_unit_rows,
    shuffled_groups,
)
from tests.rewards import gradient_aligned_rewards


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


GROUPS = st.lists(st.integers(-5, 5), max_size=20).map(lambda groups: torch.tensor(groups, dtype=torch.long))


@given(groups=GROUPS, seed=st.integers(0, 99))
def test_shuffled_groups_are_a_cycle_without_fixed_points(groups, seed):
    found = shuffled_groups(groups, seeded(seed))
    step = dict(zip(groups.tolist(), found.tolist(), strict=True))
    assert all(step[g] == other for g, other in zip(groups.tolist(), found.tolist(), strict=True))  # one per group
    if step:
        visited, here = [], next(iter(step))
        while here not in visited:
            visited.append(here)
            here = step[here]
        assert set(visited) == set(step)
        assert len(step) == 1 or all(step[g] != g for g in step)


@given(groups=GROUPS, seed=st.integers(0, 99), order=st.randoms(use_true_random=False))
def test_shuffled_groups_do_not_know_the_rank_or_how_often_a_group_stands_there(groups, seed, order):
    found = dict(zip(groups.tolist(), shuffled_groups(groups, seeded(seed)).tolist(), strict=True))
    rows = groups.tolist() * 2
    order.shuffle(rows)
    again = shuffled_groups(torch.tensor(rows, dtype=torch.long), seeded(seed))
    assert again.tolist() == [found[g] for g in rows]


def test_shuffled_groups_reach_every_cycle_and_move_on_with_the_generator():
    groups = torch.arange(4)
    generator = seeded(0)
    found = {tuple(shuffled_groups(groups, generator).tolist()) for _ in range(200)}
    assert len(found) == 6  # 3! cycles of 4; each is missed with probability (5/6)^200 = 1e-16


def shaped_with(anchors: Tensor, vectors: Tensor) -> Tensor:
    b = alignment_scores(vectors, anchors)
    everyone, zero = torch.ones(len(vectors), dtype=torch.bool), torch.zeros(len(vectors))
    return gradient_aligned_rewards(everyone, b, zero, torch.zeros(len(vectors), dtype=torch.long))


def test_shuffled_groups_of_a_batch_of_one_problem_are_gar():
    groups = torch.full((4,), 9)
    vectors, anchor = random_unit_rows(4, 8, seeded(1)), {9: random_unit_rows(1, 8, seeded(2))[0]}
    own = torch.stack([anchor[g] for g in groups.tolist()])
    shuffled = torch.stack([anchor[g] for g in shuffled_groups(groups, seeded(3)).tolist()])
    assert torch.equal(shaped_with(shuffled, vectors), shaped_with(own, vectors))
    assert shaped_with(own, vectors).unique().numel() > 1


def test_random_unit_rows_are_even_over_the_sphere():
    rows = random_unit_rows(20_000, 3, seeded(0)).double()
    torch.testing.assert_close(rows.norm(dim=-1), torch.ones(20_000).double(), rtol=1e-6, atol=0)
    # Mean 0 and second moments 1/3 on the sphere in 3 dimensions; 20,000 rows leave 0.004, five of those allowed.
    torch.testing.assert_close(rows.mean(0), torch.zeros(3).double(), rtol=0, atol=0.02)
    torch.testing.assert_close(rows.T @ rows / 20_000, torch.eye(3).double() / 3, rtol=0, atol=0.02)


def test_random_unit_rows_repeat_with_the_seed():
    assert torch.equal(random_unit_rows(3, 5, seeded(4)), random_unit_rows(3, 5, seeded(4)))
    assert not torch.equal(random_unit_rows(3, 5, seeded(4)), random_unit_rows(3, 5, seeded(5)))
    assert random_unit_rows(0, 5, seeded(4)).shape == (0, 5)


def test_length_closeness_by_hand():
    found = length_closeness(torch.tensor([5, 10, 20, 0]), torch.tensor([10, 10, 10, 10]))
    assert found.tolist() == [0.5, 1.0, 0.5, 0.0]


@given(pairs=st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=10), factor=st.integers(1, 9))
def test_length_closeness_agrees_with_division_and_knows_neither_side_nor_unit(pairs, factor):
    n, m = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    found = length_closeness(n, m)
    assert found.tolist() == [min(pair) / max(pair) for pair in pairs]
    assert torch.equal(found, length_closeness(m, n))
    assert torch.equal(found, length_closeness(factor * n, factor * m))


def test_controls_of_no_rows_are_empty():
    none = torch.zeros(0, dtype=torch.long)
    assert shuffled_groups(none, seeded(0)).shape == (0,)
    assert length_closeness(none, none).shape == (0,)


def test_length_closeness_refuses_an_anchor_without_tokens_and_a_negative_count():
    ones = torch.ones(2, dtype=torch.long)
    message = "anchor_token_counts must be at least 1, got 0 at response 1. Leave out responses without an anchor."
    with pytest.raises(ValueError, match=re.escape(message)):
        length_closeness(ones, torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=re.escape("token_counts must be at least 0, got -1 at response 0.")):
        length_closeness(torch.tensor([-1, 0]), ones)


@pytest.mark.usefixtures("unchecked")
def test_controls_refuse_shapes_and_sizes():
    with pytest.raises(ValueError, match=re.escape("anchor_token_counts must have shape (2,), got (3,)")):
        length_closeness(torch.ones(2).long(), torch.ones(3).long())
    for sizes in ((-1, 3), (2, 0)):
        message = f"num_rows must not be negative and hidden_size positive, got {sizes[0]} and {sizes[1]}"
        with pytest.raises(ValueError, match=re.escape(message)):
            random_unit_rows(*sizes, seeded(0))
