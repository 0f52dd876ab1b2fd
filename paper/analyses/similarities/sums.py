r"""Weighted sums of two or three similarities: which one has the best worst-case share over several benches?

    for model in embedded paper/tasks/models/which-way-qwen3 paper/tasks/models/whose-voice-qwen3; do
      python -m paper.analyses.similarities $model --split train --skip 1000 --problems 40 \
          --sampled-problems 0 --out bench/$(basename $model)
    done
    python -m paper.analyses.similarities.sums bench/*

Reads every pair of every question but `sampled` and `natural`, and prints the best sums. paper/analyses/signals.md has
them.
"""

import argparse
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

TERMS = (
    "as printed", "gradient", "unit", "unit gradient", "match, recall", "match, F", "kernel", "ordered",
    "ordered, scaled",
)  # fmt: skip
PAIR_WEIGHTS, TRIPLE_WEIGHTS = (0.1, 0.25, 0.5, 0.75, 1.0), (0.5, 1.0, 2.0)
NUM_SHOWN = 10


def read_gaps(folder: Path) -> list[Mapping[str, np.ndarray]]:
    """For each kind of a question: similarity of the better minus that of the worse, by similarity, [pairs]."""
    frame = pq.read_table(folder / "signals.parquet").to_pandas()
    frame = frame[~frame["question"].isin(["sampled", "natural"])]
    return [
        {term: (pairs[f"{term}, better"] - pairs[f"{term}, worse"]).to_numpy() for term in TERMS}
        for _, pairs in frame.groupby(["question", "kind"])
    ]


def least_share(kinds: list[Mapping[str, np.ndarray]], weights: Mapping[str, float]) -> float:
    """Smallest share of pairs ranked correctly over the kinds; a tie counts half."""
    gaps = [sum(weight * kind[term] for term, weight in weights.items()) for kind in kinds]
    return min(float(np.mean((gap > 0) + 0.5 * (gap == 0))) for gap in gaps)


def candidates() -> Iterator[Mapping[str, float]]:
    """Weights of single similarities, of pairs in both orders, and of triples."""
    yield from ({term: 1.0} for term in TERMS)
    for first, second in itertools.permutations(TERMS, 2):
        yield from ({first: 1.0, second: weight} for weight in PAIR_WEIGHTS)
    for terms in itertools.combinations(TERMS, 3):
        for pair in itertools.product(TRIPLE_WEIGHTS, repeat=2):
            yield dict(zip(terms, (1.0, *pair), strict=True))


def main() -> None:
    """Read, rank, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of the bench")
    benches = [read_gaps(folder) for folder in parser.parse_args().folders]
    ranked = sorted(
        (([least_share(bench, weights) for bench in benches], weights) for weights in candidates()),
        key=lambda row: (-min(row[0]), -sum(row[0])),
    )
    for shares, weights in ranked[:NUM_SHOWN]:
        words = " + ".join(f"{weight:g} {term}" for term, weight in weights.items())
        print("  ".join(f"{share:.2f}" for share in shares), " ", words)


if __name__ == "__main__":
    main()
