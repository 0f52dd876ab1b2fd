"""The controls' similarities: no group keeps its anchor, random directions are uniform, lengths by hand."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import shuffled_groups
from gar.methods.gar import length_similarity, random_anchor_vectors
from gar.response import TokenSequence


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


GROUPS = st.lists(st.integers(-5, 5), max_size=20).map(lambda groups: torch.tensor(groups, dtype=torch.long))


@given(groups=GROUPS, seed=st.integers(0, 99), order=st.randoms(use_true_random=False))
def test_shuffled_groups_are_a_cycle_without_fixed_points(groups, seed, order):
    found = shuffled_groups(groups, seeded(seed))
    step = dict(zip(groups.tolist(), found.tolist(), strict=True))
    rows = groups.tolist() * 2
    order.shuffle(rows)
    again = shuffled_groups(torch.tensor(rows, dtype=torch.long), seeded(seed))
    assert again.tolist() == [step[group] for group in rows]
    if step:
        visited, here = [], next(iter(step))
        while here not in visited:
            visited.append(here)
            here = step[here]
        assert set(visited) == set(step)
        assert len(step) == 1 or all(step[g] != g for g in step)


def test_random_anchors_are_even_over_the_sphere():
    rows = random_anchor_vectors(range(5_000), 3, seed=0).double()
    torch.testing.assert_close(rows.norm(dim=-1), torch.ones(5_000).double(), rtol=1e-6, atol=0)
    # Mean 0 and second moments 1/3 on the sphere in 3 dimensions; 5,000 rows leave 0.008, five of those allowed.
    torch.testing.assert_close(rows.mean(0), torch.zeros(3).double(), rtol=0, atol=0.04)
    torch.testing.assert_close(rows.T @ rows / 5_000, torch.eye(3).double() / 3, rtol=0, atol=0.04)


def test_random_anchors_follow_problem_and_seed():
    found = random_anchor_vectors([3, 7, 3], 5, seed=4)
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], random_anchor_vectors([3], 5, seed=5)[0])
    assert random_anchor_vectors([], 5, seed=4).shape == (0, 5)


def test_length_similarity_is_min_over_max_of_scored_tokens():
    sequences = [TokenSequence(context_ids=[1], ids=range(9), positions=range(n)) for n in (3, 4)]
    assert [length_similarity(a, b, lambda ids: []) for a in sequences for b in sequences] == [1.0, 0.75, 0.75, 1.0]
