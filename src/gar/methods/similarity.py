"""The controls' substitutes for the cosine with the anchor: random vectors, texts, lengths."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gar.core import unit_rows
from gar.reader import TokenPieces
from gar.response import TokenSequence


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
