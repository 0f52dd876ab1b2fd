"""The table of similarities: solution tokens of a response and of an anchor in, one number out.

A new similarity is a function and a line of `SIMILARITIES`. Each one is also tried with the vectors of the policy that
the run started from; `CONTROLS` are not.
"""

from collections.abc import Callable

import torch
from rapidfuzz import fuzz
from torch import Tensor

from gar.analysis.signals.tokens import SolutionTokens
from gar.core.arguments import Weighting
from gar.core.similarity import ResponseTokens, cosine_sum, kernel_similarity, mean_similarity
from gar.core.token_match import TokenMatch, ordered_match, token_match

Similarity = Callable[[SolutionTokens, SolutionTokens], float]
"""The likeness of a response and an anchor; neither is empty."""


def printed(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The paper's form: cosine of the means of g_t * h_t."""
    return _cosine(response.products, anchor.products)


def gradient(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The paper's ablation: cosine of the means of g_t."""
    return _cosine(response.gradients, anchor.gradients)


def unit(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The paper's form with token vectors of unit length."""
    return _cosine(response.products, anchor.products, "unit")


def unit_gradient(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The ablation with token vectors of unit length."""
    return _cosine(response.gradients, anchor.gradients, "unit")


def match_recall(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Each anchor token's best cosine with a token of the response, of g_t * h_t."""
    return float(_match(response.products, anchor.products).recall)


def match_f(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The mean of recall and precision of the match of g_t * h_t."""
    return float(_match(response.products, anchor.products).f_score)


def kernel(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Normalised kernel of unit gradients and unit hidden states."""
    tokens = _alone(response.gradients)
    return float(kernel_similarity(tokens, response.hidden, anchor.gradients, anchor.hidden))


def ordered(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Recall of the best pairing of g_t * h_t that keeps the order of tokens."""
    return _ordered_recall(response.products, anchor.products)


def ordered_scaled(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """The same with each dimension divided by its usual size."""
    return _ordered_recall(response.scaled, anchor.scaled)


def gradient_and_unit(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Half the sum of two cosines: `gradient` tells methods apart in other words, `unit` single wrong steps."""
    tokens = _alone(response.gradients)
    return float(cosine_sum(tokens, response.hidden, anchor.gradients, anchor.hidden).similarity)


def gradient_and_ordered(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """`ordered_scaled` and a quarter of `gradient`."""
    return ordered_scaled(response, anchor) + gradient(response, anchor) / 4


def hidden(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: cosine of the mean hidden states."""
    return _cosine(response.hidden, anchor.hidden)


def ordered_hidden(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: recall of the best pairing of hidden states that keeps the order of tokens."""
    return _ordered_recall(response.hidden, anchor.hidden)


def match_hidden(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: recall of the match of hidden states."""
    return float(_match(response.hidden, anchor.hidden).recall)


def text(response: SolutionTokens, anchor: SolutionTokens) -> float:
    """Control: likeness of the texts by edits."""
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
    """All similarities by name; with those of the policy that the run started from where there is another one."""
    start = {f"{name}, initial": _at_start(similarity) for name, similarity in SIMILARITIES.items()}
    return SIMILARITIES | (start if with_start else {}) | CONTROLS


def _at_start(similarity: Similarity) -> Similarity:
    return lambda response, anchor: similarity(response.at_start, anchor.at_start)


def _cosine(response: Tensor, anchor: Tensor, weighting: Weighting = "norm") -> float:
    return float(mean_similarity(_alone(response), anchor, weighting=weighting))


def _match(response: Tensor, anchor: Tensor) -> TokenMatch:
    return token_match(_alone(response), anchor)


def _ordered_recall(response: Tensor, anchor: Tensor) -> float:
    return float(ordered_match(_alone(response), anchor).recall)


def _alone(vectors: Tensor) -> ResponseTokens:
    return ResponseTokens(vectors, torch.zeros(len(vectors), dtype=torch.long), 1)
