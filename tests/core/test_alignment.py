"""Alignment: cosines of unit rows with their own anchor, and with the best of several."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import alignment, alignment_scores, best_alignment_scores, unit_rows


def random_unit_rows(rows: int, seed: int, width: int = 6) -> torch.Tensor:
    return unit_rows(torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)))


def test_alignment_scores_by_hand():
    # (0.6, 0.8).(1, 0) = 0.6; (0.6, 0.8).(0.8, -0.6) = 0; (0.6, 0.8).(-0.6, -0.8) = -1; and no signal on either side.
    vectors = torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.6, 0.8], [0.0, 0.0], [0.6, 0.8]])
    anchors = torch.tensor([[1.0, 0.0], [0.8, -0.6], [-0.6, -0.8], [1.0, 0.0], [0.0, 0.0]])
    found = alignment_scores(vectors, anchors)
    torch.testing.assert_close(found, torch.tensor([0.6, 0.0, -1.0, 0.0, 0.0]), rtol=1e-7, atol=1e-8)
    assert found.dtype == torch.float32


def test_alignment_scores_never_leave_minus_one_to_one():
    row = unit_rows(torch.ones(1, 6))  # the float32 nearest 1/sqrt(6): six squares sum to 1 + 7e-8
    assert row.double().square().sum().float() > 1.0
    assert alignment_scores(row, row).item() == 1.0
    assert alignment_scores(row, -row).item() == -1.0
    scores, _, place = best_alignment_scores(row, torch.tensor([0]), row.repeat(2, 1), torch.tensor([0, 0]))
    assert (scores.item(), place.item()) == (1.0, 0)  # the first of equals


def test_alignment_scores_of_bfloat16_rows_are_not_rounded_to_bfloat16():
    """41 cosines, 0.0002 apart, stay 41. bfloat16 would leave 3: its steps are 0.0039 between 0.5 and 1."""
    cosines = torch.linspace(0.858, 0.866, 41)
    vectors = torch.stack([cosines, (1 - cosines.square()).sqrt()], dim=1)
    anchors = torch.tensor([[1.0, 0.0]]).repeat(41, 1)
    assert alignment_scores(vectors, anchors.bfloat16()).unique().numel() == 41
    assert (vectors.bfloat16() * anchors.bfloat16()).sum(-1).unique().numel() == 3


@given(
    groups=st.lists(st.integers(0, 4), max_size=12),
    anchor_groups=st.lists(st.integers(0, 5), max_size=8),
    zero=st.sets(st.integers(0, 11)),
    seed=st.integers(0, 2**20),
    chunk_rows=st.sampled_from([1, 3, 12]),
)
def test_best_alignment_scores_are_the_largest_over_usable_anchors_of_the_group(
    groups, anchor_groups, zero, seed, chunk_rows
):
    vectors, anchors = random_unit_rows(len(groups), seed), random_unit_rows(len(anchor_groups), seed + 1)
    for row in zero:
        vectors[row : row + 1] = 0.0
        anchors[row : row + 1] = 0.0
    index, anchor_index = (torch.tensor(names, dtype=torch.long) for names in (groups, anchor_groups))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_CHUNK_ROWS", chunk_rows)
        scores, scored, best_index = best_alignment_scores(vectors, index, anchors, anchor_index)
    assert scores.dtype == torch.float32
    for i, group in enumerate(groups):
        mine = [a for a, other in enumerate(anchor_groups) if other == group and bool(anchors[a].any())]
        usable = bool(mine) and bool(vectors[i].any())
        assert scored[i].item() == usable
        cosines = [float(vectors[i].double() @ anchors[a].double()) for a in mine]
        assert scores[i].item() == pytest.approx(max(cosines) if usable else 0.0, abs=6e-8)
        best = int(best_index[i])
        assert best in mine if usable else best == -1
        if usable:
            assert cosines[mine.index(best)] == pytest.approx(max(cosines), abs=6e-8)
