"""The table of similarities: solution tokens of a response and of an anchor in, one number out.

A new similarity is an entry of `SIMILARITIES`. Each one is also tried with the vectors of the policy that
the run started from. `CONTROLS` are not. Everything is float64.
"""

from collections.abc import Callable

import torch
from rapidfuzz import fuzz
from torch import Tensor

from gar.core import alignment_scores, unit_rows
from paper.analyses.similarities.tokens import SolutionTokens

Similarity = Callable[[SolutionTokens, SolutionTokens], float]
"""The similarity of a response and an anchor. Neither is empty."""

_TOKEN_NORM_FLOOR = 1e-30
"""Below this norm, float32 cannot resolve the direction of a token vector."""

# ------------------------------------------------------------------------------------------- token vectors to a number


def mean_cosine(one: Tensor, other: Tensor) -> float:
    """Cosine of the means of two lists of token vectors, 0 where a mean has no direction."""
    means = unit_rows(torch.stack([one.double().mean(0), other.double().mean(0)]))
    return float(alignment_scores(means[:1], means[1:]))


def unit_tokens(vectors: Tensor) -> Tensor:
    """Each token's vector at unit length, float64. A zero row if it has no direction."""
    norms = vectors.double().norm(dim=-1, keepdim=True)
    return torch.where(norms < _TOKEN_NORM_FLOOR, 0.0, vectors.double() / norms)


def best_counterparts(response: Tensor, anchor: Tensor) -> tuple[float, float]:
    """BERTScore on token vectors: mean over the anchor's tokens of the best cosine, and over the response's.

    References:
        arXiv 1904.09675, eq. 1, on vectors of another kind.
    """
    cosines = unit_tokens(response) @ unit_tokens(anchor).T
    return float(cosines.amax(0).mean()), float(cosines.amax(1).mean())


def ordered_recall(response: Tensor, anchor: Tensor) -> float:
    """The best pairing of tokens that keeps their order: its sum of cosines over the number of anchor tokens.

    `D(t, s) = max(D(t - 1, s), D(t, s - 1), D(t - 1, s - 1) + cos(u_t, u_s))`. Each token has at most one partner, and
    partners do not cross, so that swapped or repeated steps do not count twice. With cosines 1 for equal tokens and 0
    for others, D is the length of the longest common subsequence.

    References:
        Needleman and Wunsch 1970, https://doi.org/10.1016/0022-2836(70)90057-4, without a penalty for gaps.
    """
    best = torch.zeros(len(anchor) + 1, dtype=torch.float64)
    for row in unit_tokens(response) @ unit_tokens(anchor).T:
        paired = torch.maximum(best[1:], best[:-1] + row)
        best = torch.cat([best[:1], paired]).cummax(0).values
    return float(best[-1]) / len(anchor)


def kernel_cosine(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> float:
    """`K(i, a) / sqrt(K(i, i) K(a, a))`, where `K(i, a) = mean over t, s of (g_t . g_s)(h_t . h_s)`, at unit length.

    It is the cosine of the mean outer products of gradient and hidden state, [hidden, hidden] matrices that are never
    formed.
    """

    def kernel(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        gradients, hidden = (unit_tokens(x) @ unit_tokens(y).T for x, y in zip(a, b, strict=True))
        return (gradients * hidden).mean()

    return float((kernel(one, other) / (kernel(one, one) * kernel(other, other)).sqrt()).clamp(-1, 1))


# ----------------------------------------------------------------------------------------------------------- the table

SIMILARITIES: dict[str, Similarity] = {
    # The paper's form: cosine of the means of g_t * h_t.
    "as printed": lambda response, anchor: mean_cosine(response.products, anchor.products),
    # The paper's ablation: cosine of the means of g_t.
    "gradient": lambda response, anchor: mean_cosine(response.gradients, anchor.gradients),
    # Both with token vectors of unit length.
    "unit": lambda response, anchor: mean_cosine(unit_tokens(response.products), unit_tokens(anchor.products)),
    "unit gradient": lambda response, anchor: mean_cosine(
        unit_tokens(response.gradients), unit_tokens(anchor.gradients)
    ),
    # Each anchor token's best cosine with a token of the response, of g_t * h_t. F: the mean of recall and precision.
    "match, recall": lambda response, anchor: best_counterparts(response.products, anchor.products)[0],
    "match, F": lambda response, anchor: sum(best_counterparts(response.products, anchor.products)) / 2,
    # Normalized kernel of unit gradients and unit hidden states.
    "kernel": lambda response, anchor: kernel_cosine(
        (response.gradients, response.hidden), (anchor.gradients, anchor.hidden)
    ),
    # Recall of the best pairing of g_t * h_t that keeps the order of tokens.
    "ordered": lambda response, anchor: ordered_recall(response.products, anchor.products),
    # The same with each dimension divided by its usual size.
    "ordered, scaled": lambda response, anchor: ordered_recall(response.scaled, anchor.scaled),
    # Half the sum of two: the gradient separates methods in other words, unit vectors single wrong steps.
    "gradient + unit": lambda response, anchor: (
        (
            mean_cosine(response.gradients, anchor.gradients)
            + mean_cosine(unit_tokens(response.products), unit_tokens(anchor.products))
        )
        / 2
    ),
    "gradient / 4 + ordered, scaled": lambda response, anchor: (
        mean_cosine(response.gradients, anchor.gradients) / 4 + ordered_recall(response.scaled, anchor.scaled)
    ),
}
CONTROLS: dict[str, Similarity] = {
    "hidden states": lambda response, anchor: mean_cosine(response.hidden, anchor.hidden),
    "match of hidden states": lambda response, anchor: best_counterparts(response.hidden, anchor.hidden)[0],
    "ordered, of hidden states": lambda response, anchor: ordered_recall(response.hidden, anchor.hidden),
    # By edits.
    "text": lambda response, anchor: fuzz.ratio(response.text, anchor.text) / 100,
    # The shorter number of tokens over the longer one.
    "length": lambda response, anchor: min(len(response), len(anchor)) / max(len(response), len(anchor)),
    # The response's mean, whatever the anchor.
    "log-probability": lambda response, anchor: float(response.log_probs.mean()),
}
"""Baselines for a similarity."""


def all_similarities(*, with_start: bool) -> dict[str, Similarity]:
    """All similarities by name, also with the vectors of the policy that the run started from, if it differs."""
    start = {f"{name}, initial": _at_start(similarity) for name, similarity in SIMILARITIES.items()}
    return SIMILARITIES | (start if with_start else {}) | CONTROLS


def _at_start(similarity: Similarity) -> Similarity:
    return lambda response, anchor: similarity(response.at_start, anchor.at_start)
