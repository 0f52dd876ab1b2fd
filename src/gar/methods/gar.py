"""GAR: correct responses that align better than their group earn a bonus [arXiv 2609.03342, algorithm 1].

The controls replace the cosine with the anchor by a different similarity. A gain that a control shares is not due to
the gradient's direction.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gar.core import gradient_aligned_bonuses, shuffled_groups, unit_rows
from gar.methods.base import (
    BONUS_SETTINGS,
    Method,
    ScoredBatch,
    ShapedRewards,
    eligible_responses,
    format_penalties,
    outcome_rewards,
)
from gar.reader import TokenPieces
from gar.response import TokenSequence
from gar.settings import RewardSettings


def gradient_aligned_shape(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """Outcome rewards plus the alignment bonus. With `bonus_weight=0` equal to `outcome_rewards`, bit for bit."""
    plain = outcome_rewards(batch, settings)
    bonuses = gradient_aligned_bonuses(
        eligible_responses(batch, settings),
        batch.alignment.double(),
        batch.group_index,
        scored=batch.scored,
        bonus_weight=settings.bonus_weight,
        center=settings.center,
        clip=settings.clip,
    )
    return replace(plain, rewards=plain.outcomes + bonuses + plain.penalties, bonuses=bonuses)


GAR_GRPO = Method(
    name="gar-grpo",
    summary="outcome reward plus gradient-aligned bonus, normalized within the group",
    shape=gradient_aligned_shape,
    reward=BONUS_SETTINGS,
    alignment="anchor",
)

GAR_REINFORCE_PLUS_PLUS = replace(
    GAR_GRPO,
    name="gar-reinforce-plus-plus",
    summary="outcome reward plus gradient-aligned bonus, whitened over all tokens of the batch",
    estimator="reinforce-plus-plus",
)

CONTROLS = tuple(
    replace(GAR_GRPO, name=name, summary=f"control: {summary}", **changes)
    for name, summary, changes in (
        ("anchor-shuffled", "the expert solution is another problem's", {"alignment": "shuffled-anchor"}),
        ("anchor-random", "a random vector for each problem, no expert solution", {"alignment": "random-anchor"}),
        ("hidden-cosine", "cosine of mean hidden states", {"signal": {"kind": "hidden"}}),
        ("text-similarity", "similarity of the texts, a ratio of edits", {"alignment": "text"}),
        ("length", "closeness in length to the expert solution", {"alignment": "length"}),
    )
)


def shuffled_partners(has_anchor: np.ndarray, *, seed: int) -> np.ndarray:
    """The problem whose expert solutions each problem is compared with under `anchor-shuffled`, int64 [problems].

    One of a single random cycle through the problems with an expert solution. The others keep their own number.
    """
    owners = torch.from_numpy(np.flatnonzero(has_anchor))
    partners = np.arange(len(has_anchor))
    partners[owners] = shuffled_groups(owners, torch.Generator().manual_seed(seed)).numpy()
    return partners


def random_anchor_vectors(problem_index: Sequence[int], width: int, *, seed: int) -> Tensor:
    """A random direction for each problem, uniform on the sphere, and fixed for the problem during a run.

    Returns:
        float32 [problems, hidden], on the CPU.
    """
    # torch's generator reads 32 bits of a seed, so both numbers are mixed into them.
    seeds = [int(np.random.SeedSequence([seed, problem]).generate_state(1)[0]) for problem in problem_index]
    generators = [torch.Generator().manual_seed(mixed) for mixed in seeds]
    return torch.cat([torch.zeros(0, width), *(unit_rows(torch.randn(1, width, generator=g)) for g in generators)])


def text_similarity(response: TokenSequence, anchor: TokenSequence, pieces: TokenPieces) -> float:
    """`1 - edits / (length + length)` of the scored texts, edits counting insertions and deletions of a character.

    References:
        The normalized Indel similarity, https://rapidfuzz.github.io/RapidFuzz/Usage/fuzz.html#ratio
    """
    from rapidfuzz import fuzz  # a container with an engine may lack it

    return fuzz.ratio("".join(pieces(response.scored_ids)), "".join(pieces(anchor.scored_ids))) / 100


def length_similarity(response: TokenSequence, anchor: TokenSequence, pieces: TokenPieces) -> float:
    """`min / max` of the numbers of scored tokens, both at least 1."""
    shorter, longer = sorted([len(response.positions), len(anchor.positions)])
    return shorter / longer


SIMILARITIES: dict[str, Callable[[TokenSequence, TokenSequence, TokenPieces], float]] = {
    "text": text_similarity,
    "length": length_similarity,
}
"""Alignments that need no model."""


def alignment_alone(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """The cosine itself as reward, right or wrong, plus the penalty for bad format. No base reward, no gate."""
    penalties = format_penalties(batch, settings)
    bonuses = batch.alignment.double().where(batch.scored, 0.0)
    return ShapedRewards(
        rewards=bonuses + penalties, outcomes=bonuses.new_zeros(len(bonuses)), bonuses=bonuses, penalties=penalties
    )


ALIGNMENT_ONLY = Method(
    name="alignment-only",
    summary="ablation: the cosine alone as reward, for right and wrong responses",
    shape=alignment_alone,
    reward=("format_penalty",),
    alignment="anchor",
    scores_all=True,
)
