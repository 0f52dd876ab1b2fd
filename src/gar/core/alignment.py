"""Alignment: the cosine of a response's gradient-activation vector with its problem's anchor."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

_CHUNK_ROWS = 1024
"""Rows widened to float64 at one time."""


def alignment_scores(
    vectors: Float[Tensor, "responses hidden"], anchors: Float[Tensor, "responses hidden"]
) -> Float32[Tensor, " responses"]:
    """Cosine of each response's vector with its anchor's vector: `b_i = v_i . v_a`.

    Args:
        vectors: Unit rows, as `unit_rows` returns them. A zero row has no signal.
        anchors: Unit rows. Row i is the anchor of response i.

    Returns:
        float32 in [-1, 1], summed in float64. 0 if either row is zero. bfloat16 could not separate cosines that differ
        by less than 0.004, the size of the centered bonus.

    References:
        GAR, arXiv 2609.03342, eq. 5.

    Example:
        >>> alignment_scores(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.6, 0.8], [0.0, -1.0]]))
        tensor([ 0.6000, -1.0000])
    """
    if vectors.shape != anchors.shape:
        raise ValueError(
            f"anchors must have one row per response, expected shape {tuple(vectors.shape)}, got "
            f"{tuple(anchors.shape)}. Were the anchors repeated for every response of their group?"
        )
    return (vectors.double() * anchors.double()).sum(-1).clamp(-1.0, 1.0).float()


class BestAlignment(NamedTuple):
    """Result of `best_alignment_scores`, one entry per response.

    Attributes:
        scores: float32, the largest cosine, or 0 if not scored.
        scored: True if the response and at least one anchor of its group have a usable vector.
        anchor_index: int64, the row of the anchor with that cosine (the first if several tie), or -1 if not scored.
    """

    scores: Tensor
    scored: Tensor
    anchor_index: Tensor


def best_alignment_scores(
    vectors: Float[Tensor, "responses hidden"],
    group_index: Int[Tensor, " responses"],
    anchors: Float[Tensor, "anchors hidden"],
    anchor_group_index: Int[Tensor, " anchors"],
) -> BestAlignment:
    """Largest cosine of each response with the usable anchors of its group.

    With one anchor per group this is `alignment_scores`. With several, the best cosine counts, as in GAR's released
    code.

    Args:
        vectors: Unit rows. A zero row has no signal.
        group_index: Which group a response belongs to.
        anchors: Unit rows, in any order. A zero row is skipped.
        anchor_group_index: Which group an anchor belongs to.
    """
    usable = (anchors != 0).any(-1).nonzero()[:, 0]
    order = usable[torch.argsort(anchor_group_index[usable], stable=True)]
    grouped = anchor_group_index[order].contiguous()
    first = torch.searchsorted(grouped, group_index)
    count = torch.searchsorted(grouped, group_index, right=True) - first
    count = count.where((vectors != 0).any(-1), 0)

    scores = vectors.new_full((len(vectors),), -torch.inf, dtype=torch.float32)
    anchor_index = torch.full_like(count, -1)
    for k in range(int(count.max()) if len(count) else 0):
        for members in (count > k).nonzero()[:, 0].split(_CHUNK_ROWS):
            candidates = order[first[members] + k]
            cosines = alignment_scores(vectors[members], anchors[candidates])
            better = cosines > scores[members]
            scores[members] = torch.where(better, cosines, scores[members])
            anchor_index[members] = torch.where(better, candidates, anchor_index[members])
    scored = anchor_index >= 0
    return BestAlignment(scores=scores.where(scored, 0.0), scored=scored, anchor_index=anchor_index)
