"""How often each similarity ranks a pair correctly, for every question, with intervals over problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from paper.analyses.similarities.forms import Similarity
from paper.analyses.similarities.questions import NEAREST, QUESTIONS, Triple
from paper.analyses.similarities.tokens import SolutionTokens

Floats = NDArray[np.float64]

EQUAL_LENGTH = 0.05
"""Two solutions count as equally long if their lengths differ by at most this share of the longer one."""
_TIE = 1e-9
"""Similarities closer than this are equal. It is far below float32 rounding, so that only equal inputs tie."""
_NUM_RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Share of triples that a similarity ranks correctly. A tie counts half.

    Attributes:
        share: NaN without triples.
        low: Lower end of the 95% interval by bootstrap over problems. `high` is the upper end.
        mean_better: Mean similarity of the pairs that should rank first, `mean_worse` of the others.
        num_triples: Triples, without those in which a solution has no token.
        num_problems: Problems of these triples.
    """

    share: float
    low: float
    high: float
    mean_better: float
    mean_worse: float
    num_triples: int
    num_problems: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Shares of all similarities.

    Attributes:
        shares: By similarity, then by question and kind.
        equal_lengths: The same for the triples with two equally long solutions.
        data: A row for each triple.
    """

    shares: Mapping[str, Mapping[str, Share]]
    equal_lengths: Mapping[str, Mapping[str, Share]]
    data: pa.Table


def run_bench(
    triples: Sequence[Triple], tokens: Sequence[SolutionTokens], similarities: Mapping[str, Similarity]
) -> Bench:
    """Ask every similarity every question.

    Args:
        triples: At least one.
        tokens: Tokens of the solutions that the triples name.
        similarities: By name.
    """
    values = {
        name: _values(triples, tokens, similarity)
        for name, similarity in tqdm(similarities.items(), desc="similarities", delay=2, disable=None)
    }
    changed = [  # the solutions that a triple compares: responses, or anchors
        (t.better[0], t.worse[0]) if t.better[1] == t.worse[1] else (t.better[1], t.worse[1]) for t in triples
    ]
    lengths = np.array([[len(tokens[index]) for index in pair] for pair in changed])
    alike = np.abs(lengths[:, 0] - lengths[:, 1]) <= EQUAL_LENGTH * lengths.max(1)
    columns = np.array([f"{t.question}: {t.kind}" for t in triples])
    problems = np.array([t.problem_id for t in triples])
    chosen_by_length = np.array([t.kind == NEAREST for t in triples])
    equal = np.array([f"{t.question}: any" if t.kind == NEAREST else c for t, c in zip(triples, columns, strict=True)])
    shares, equal_lengths = {}, {}
    for name, (better, worse) in values.items():
        wins = np.where(np.abs(better - worse) <= _TIE, 0.5, better > worse)
        scores = np.stack([np.where(np.isnan(better) | np.isnan(worse), np.nan, wins), better, worse])
        shares[name] = _by_column(scores, columns, problems, ~chosen_by_length)
        equal_lengths[name] = _by_column(scores, equal, problems, alike)
    data = {"question": [t.question for t in triples], "kind": [t.kind for t in triples], "problem_id": problems}
    data |= {"tokens_better": lengths[:, 0], "tokens_worse": lengths[:, 1]}
    for name, (better, worse) in values.items():
        data |= {f"{name}, better": better, f"{name}, worse": worse}
    table = {name: pa.array(column if isinstance(column, list) else column.tolist()) for name, column in data.items()}
    return Bench(shares=shares, equal_lengths=equal_lengths, data=pa.table(table))


def _values(
    triples: Sequence[Triple], tokens: Sequence[SolutionTokens], similarity: Similarity
) -> tuple[Floats, Floats]:
    pairs = {pair for triple in triples for pair in (triple.better, triple.worse)}
    known = {
        (response, anchor): similarity(tokens[response], tokens[anchor])
        if len(tokens[response]) and len(tokens[anchor])
        else np.nan
        for response, anchor in pairs
    }
    return np.array([known[t.better] for t in triples]), np.array([known[t.worse] for t in triples])


def _by_column(scores: Floats, columns: NDArray, problems: NDArray, use: NDArray) -> dict[str, Share]:
    order = [c for question in QUESTIONS for c in dict.fromkeys(columns[use].tolist()) if c.startswith(f"{question}:")]
    use = use & np.isfinite(scores[0])
    masks = {column: use & (columns == column) for column in order}
    return {column: rank_share(scores[:, mask], problems[mask]) for column, mask in masks.items()}


def rank_share(scores: Floats, problems: NDArray) -> Share:
    """Mean of wins with its percentile interval. A resample draws problems with replacement.

    Args:
        scores: [3, triples]: 1, 0 or 0.5 for a win, and the similarities of the better and of the worse pair.
        problems: Problem of each triple.
    """
    wins, better, worse = scores
    if not len(wins):
        nothing = dict.fromkeys(("share", "low", "high", "mean_better", "mean_worse"), np.nan)
        return Share(**nothing, num_triples=0, num_problems=0)
    names, index = np.unique(problems, return_inverse=True)
    counts, sums = np.bincount(index), np.bincount(index, wins)
    draws = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), _NUM_RESAMPLES)
    low, high = np.quantile((draws @ sums) / (draws @ counts), (0.025, 0.975))
    return Share(
        share=float(wins.mean()),
        low=float(low),
        high=float(high),
        mean_better=float(better.mean()),
        mean_worse=float(worse.mean()),
        num_triples=len(wins),
        num_problems=len(names),
    )
