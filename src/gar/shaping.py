"""Decisions that every driver (TRL, `GarScorer`, slime, verl) takes alike on the way from responses to rewards."""

import torch
from torch import Tensor

from gar.core import group_sizes
from gar.methods import Method, ScoredBatch, eligible_responses
from gar.settings import RewardSettings


def responses_to_score(method: Method, settings: RewardSettings, facts: ScoredBatch, can_score: Tensor) -> Tensor:
    """Which responses need an alignment or, where the method compares responses, a vector: bool [responses].

    These are the responses whose bonus may depend on it. Any other response has a bonus of 0 whatever its alignment,
    and no part in the bonus of others. `beta` plays no role: with `beta=0` alignments are still measured and logged.

    Args:
        method: What is trained.
        settings: `centre` and `singleton` decide whether the only such response of a group may earn a bonus: its
            centred alignment is 0, its own cosine is not.
        facts: Verdicts and groups of the responses of all ranks; `alignment`, `scored` and `vectors` are not read.
        can_score: Bool [responses]: has tokens to score and, for a method with an alignment, an anchor.

    References:
        GAR, arXiv 2609.03342, eqs. 6 and 9.
    """
    if method.alignment is None and not method.compares_responses:
        return torch.zeros_like(can_score)
    if method.scores_all or method.compares_responses:
        return can_score
    candidates = can_score & eligible_responses(facts, settings)
    if not settings.centre or settings.singleton == "absolute":
        return candidates
    return candidates & (group_sizes(facts.group_index, candidates) >= 2)
