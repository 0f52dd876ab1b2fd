"""G2RL: how far a response's gradient points away from the others of its group, and the reward that follows.

G2RL's feature `phi_t = W^T (e_{y_{t+1}} - p_t)` is `-u_t` of `response_means` with the signal "gradient". Only
squared cosines are used below, so those unit rows need no change of sign.
"""

import torch
from jaxtyping import Bool, Float, Float32, Int, Shaped
from torch import Tensor

from gar.core.arguments import as_given, check_finite, check_shapes
from gar.core.groups import group_extremes

_EQUAL_WITHIN = 1e-6
"""Novelties of a group closer than this are equal: unit rows in float32 leave about 1e-7 between identical responses,
which min-max scaling would stretch to the full range."""


def novelty_scores(
    vectors: Float[Tensor, "responses hidden"],
    eligible: Bool[Tensor, " responses"],
    group_index: Int[Tensor, " responses"],
) -> Float32[Tensor, " responses"]:
    """G2RL's exploration score: `nu_i = max(0, 1 - sum_j w_ij S_ij^2)`, S the cosines within the group.

    `w_ij = exp(r_j) / sum_{k != i} exp(r_k)`, `w_ii = 0`, r = +1 for an eligible response and -1 for others: repeating
    a right answer is less novel than repeating a wrong one.

    Args:
        vectors: Unit rows of the raw gradient, for all responses, right or wrong. A zero row has no signal.
        eligible: Verified and well formatted.
        group_index: Which problem a response answers. Any integers, any order.

    Returns:
        float32 in [0, 1], computed in float64. 1 for a response without others to compare with. A response without
        signal (no tokens, or a vanished gradient) gets 0 and is not a reference: with a cosine of 0 it would count as
        novel, and make all others more novel. The paper does not cover it.

    Raises:
        ValueError: Shapes differ or a vector is not finite.

    References:
        G2RL, arXiv 2512.15687.

    Example:
        >>> v = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, -1.0]])
        >>> novelty_scores(v, torch.tensor([True, False, True]), torch.tensor([0, 0, 0]))
        tensor([0.8808, 0.5000, 1.0000])
    """
    check_shapes(vectors.shape[:1], eligible=eligible, group_index=group_index)
    check_finite("vectors", vectors.sum(-1))
    scores = vectors.new_zeros(len(vectors), dtype=torch.float64)
    has_signal = (vectors != 0).any(-1)
    for group in group_index.unique():
        members = (has_signal & (group_index == group)).nonzero()[:, 0]
        rows = vectors[members].double()
        overlaps = _reference_weights(eligible[members]) * (rows @ rows.T).square()
        scores[members] = (1.0 - overlaps.sum(-1)).clamp(min=0.0)
    return scores.float()


def novelty_rewards(
    eligible: Bool[Tensor, " responses"],
    novelty: Shaped[Tensor, " responses"],
    penalty: Shaped[Tensor, " responses"],
    group_index: Int[Tensor, " responses"],
    *,
    scored: Bool[Tensor, " responses"] | None = None,
) -> Float[Tensor, " responses"]:
    """G2RL's reward: `r_i * (1 + nubar_i) + penalty_i`, r = +1 if eligible, else -1.

    nubar is the novelty scaled within the group: `(nu_i - min nu) / (max nu - min nu)`. A novel right answer gains and
    a novel wrong one loses, as in the paper's text. Its formula has `1 + lambda r nubar`, which would reward a novel
    wrong answer. The paper does not state lambda. With our 1, rewards never reach its clip at -3 and 3.

    Args:
        eligible: Verified and well formatted.
        novelty: nu, from `novelty_scores`. Entries outside `scored` are not read and may be NaN.
        penalty: Usually -0.6 for a badly formatted response and 0 otherwise.
        group_index: Which problem a response answers.
        scored: Has a usable vector. None means all.

    Returns:
        One reward per response in `novelty`'s dtype, torch's default for integers and bool. Computed in float64. nubar
        is 0 without a usable vector, and if the group's novelties are equal to within 1e-6 (one response, copies, and
        always two responses, which share one cosine).

    Raises:
        ValueError: Shapes differ, or a scored novelty is not finite.

    References:
        G2RL, arXiv 2512.15687.

    Example:
        >>> eligible, novelty = torch.tensor([True, True, False, False]), torch.tensor([0.2, 0.6, 0.2, 0.6])
        >>> novelty_rewards(eligible, novelty, torch.zeros(4), torch.zeros(4).long())
        tensor([ 1.,  2., -1., -2.])
    """
    if scored is None:
        scored = torch.ones_like(novelty, dtype=torch.bool)
    check_shapes(novelty.shape, eligible=eligible, penalty=penalty, group_index=group_index, scored=scored)
    check_finite("novelty", novelty, scored)
    values = novelty.double().where(scored, 0.0)
    low = group_extremes(values, group_index, scored, "amin")
    high = group_extremes(values, group_index, scored, "amax")
    relative = torch.where(scored & (high - low > _EQUAL_WITHIN), (values - low) / (high - low), 0.0)
    outcomes = torch.where(eligible, 1.0, -1.0).double()
    return as_given(outcomes * (1.0 + relative) + penalty.double(), novelty)


def _reference_weights(eligible: Tensor) -> Tensor:
    """w of one group, float64 [responses, responses]. A zero row for a response that is alone."""
    exponentials = torch.where(eligible, 1.0, -1.0).double().exp().expand(len(eligible), -1)
    others = exponentials * ~torch.eye(len(eligible), dtype=torch.bool, device=eligible.device)
    return others / others.sum(-1, keepdim=True).clamp(min=torch.finfo(others.dtype).tiny)
