"""The table of similarities: solution tokens of a response and of an anchor in, one number out.

A new similarity is a function and a line of `SIMILARITIES`. Each one is also tried with the vectors of the policy that
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


def printed(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The paper's form: cosine of the means of g_t * h_t."""
    return mean_cosine(response.products, anchor.products)


def gradient(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The paper's ablation: cosine of the means of g_t."""
    return mean_cosine(response.gradients, anchor.gradients)


def unit(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The paper's form with token vectors of unit length."""
    return mean_cosine(unit_tokens(response.products), unit_tokens(anchor.products))


def unit_gradient(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The ablation with token vectors of unit length."""
    return mean_cosine(unit_tokens(response.gradients), unit_tokens(anchor.gradients))


def match_recall(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Each anchor token's best cosine with a token of the response, of g_t * h_t."""
    return best_counterparts(response.products, anchor.products)[0]


def match_f(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The mean of recall and precision of the match of g_t * h_t."""
    return sum(best_counterparts(response.products, anchor.products)) / 2


def kernel(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Normalized kernel of unit gradients and unit hidden states."""
    return kernel_cosine((response.gradients, response.hidden), (anchor.gradients, anchor.hidden))


def ordered(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Recall of the best pairing of g_t * h_t that keeps the order of tokens."""
    return ordered_recall(response.products, anchor.products)


def ordered_scaled(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The same with each dimension divided by its usual size."""
    return ordered_recall(response.scaled, anchor.scaled)


def gradient_and_unit(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Half the sum of two cosines: `gradient` separates methods in other words, `unit` single wrong steps."""
    return (gradient(response, anchor) + unit(response, anchor)) / 2


def gradient_and_ordered(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """`ordered_scaled` and a quarter of `gradient`."""
    return ordered_scaled(response, anchor) + gradient(response, anchor) / 4


def hidden(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: cosine of the mean hidden states."""
    return mean_cosine(response.hidden, anchor.hidden)


def ordered_hidden(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: recall of the best pairing of hidden states that keeps the order of tokens."""
    return ordered_recall(response.hidden, anchor.hidden)


def match_hidden(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: recall of the match of hidden states."""
    return best_counterparts(response.hidden, anchor.hidden)[0]


def text(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: similarity of the texts by edits."""
    return fuzz.ratio(response.text, anchor.text) / 100


def length(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: the shorter number of tokens over the longer one."""
    return min(len(response), len(anchor)) / max(len(response), len(anchor))


def log_probability(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: the response's mean log-probability, whatever the anchor."""
    return float(response.log_probs.mean())


SIMILARITIES: dict[str, Similarity] = {
    "as printed": printed,
    "gradient": gradient,
    "unit": unit,
    "unit gradient": unit_gradient,
    "match, recall": match_recall,
    "match, F": match_f,
    "kernel": kernel,
    "ordered": ordered,
    "ordered, scaled": ordered_scaled,
    "gradient + unit": gradient_and_unit,
    "gradient / 4 + ordered, scaled": gradient_and_ordered,
}
CONTROLS: dict[str, Similarity] = {
    "hidden states": hidden,
    "match of hidden states": match_hidden,
    "ordered, of hidden states": ordered_hidden,
    "text": text,
    "length": length,
    "log-probability": log_probability,
}
"""Baselines for a similarity."""


def all_similarities(*, with_start: bool) -> dict[str, Similarity]:
    """All similarities by name, also with the vectors of the policy that the run started from, if it differs."""
    start = {f"{name}, initial": _at_start(similarity) for name, similarity in SIMILARITIES.items()}
    return SIMILARITIES | (start if with_start else {}) | CONTROLS


def _at_start(similarity: Similarity) -> Similarity:
    return lambda response, anchor: similarity(response.at_start, anchor.at_start)
