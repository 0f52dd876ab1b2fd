"""Time and memory of `gar eval contamination` on a training set of the size of NuminaMath.

    python benchmarks/contamination.py TRAIN.jsonl BENCHMARK.jsonl [--rows 860000] [--near 0.7 --rows 20000]

The large training set is synthetic: each row is a real problem of TRAIN with its sentences in another order and its
numbers changed, and 200 of the benchmark's problems are hidden among the rows, half of them unchanged and half inside
another problem. Both files have the columns of GSM8K. Prints rows per second of the process's CPU time and of the wall
clock, and the growth of memory. Fails if a hidden problem is not found, or anything else is called a copy. Writes
results/contamination.json.
"""

import argparse
import json
import random
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import machine, write_json

from gar.data.problems import Problem, ProblemReader
from gar.evaluation.contamination import OverlapReport, Target, find_overlaps

NUM_HIDDEN = 200


def questions(path: Path) -> list[str]:
    return [json.loads(line)["question"] for line in path.read_text().splitlines()]


def permuted(text: str, rng: random.Random) -> str:
    """The text with its sentences in another order and other numbers."""
    sentences = re.split(r"(?<=[.?!]) ", text)
    rng.shuffle(sentences)
    return re.sub("[0-9]+", lambda match: str(rng.randint(2, 999)), " ".join(sentences))


def write_training_set(path: Path, real: list[str], hidden: list[str], num_rows: int) -> None:
    rng = random.Random(0)
    places = dict(zip(rng.sample(range(num_rows), len(hidden)), hidden, strict=True))
    with path.open("w") as file:
        for row in range(num_rows):
            text = permuted(rng.choice(real), rng)
            if row in places:
                exact = hidden.index(places[row]) % 2 == 0
                text = places[row] if exact else f"{text} {places[row]} {text}"
            file.write(json.dumps({"question": text, "answer": f"So it is {row}.\n#### {row}"}) + "\n")


def texts(path: Path) -> Iterator[tuple[str, str]]:
    for place, item in ProblemReader(str(path)):
        if isinstance(item, Problem) and isinstance(item.prompt, str):
            yield place, item.prompt


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def check(report: OverlapReport, hidden: list[str]) -> None:
    """Check that all hidden problems are found, and no other is called a copy."""
    whole = {overlap.target.text for overlap in report.overlaps if overlap.shared_fraction == 1.0}
    exact = {overlap.target.text for overlap in report.overlaps if overlap.num_exact}
    if (whole, exact) != (set(hidden), set(hidden[::2])):
        raise SystemExit(f"{len(whole)} problems found whole and {len(exact)} exact, expected {NUM_HIDDEN} and half.")


def run(train: Path, benchmark: Path, num_rows: int, near: float | None) -> dict[str, Any]:
    """Make the file, look through it, check."""
    problems = list(dict.fromkeys(questions(benchmark)))
    hidden = random.Random(1).sample([text for text in problems if len(text.split()) >= 20], NUM_HIDDEN)
    targets = [Target(benchmark=benchmark.stem, id=str(i), text=text) for i, text in enumerate(problems)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        write_training_set(path, questions(train), hidden, num_rows)
        before, wall, cpu = peak_bytes(), time.perf_counter(), time.process_time()
        report = find_overlaps(texts(path), targets, near_threshold=near)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        file_bytes = path.stat().st_size
    check(report, hidden)
    return {
        "rows": report.num_rows,
        "file_bytes": file_bytes,
        "problems": len(targets),
        "near_threshold": near,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "rows_per_cpu_second": report.num_rows / cpu,
        "memory_growth_bytes": peak_bytes() - before,
        "problems_sharing_a_13_gram": sum(overlap.num_sharing > 0 for overlap in report.overlaps),
        "problems_near": sum(overlap.num_near > 0 for overlap in report.overlaps),
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("benchmark", type=Path)
    parser.add_argument("--rows", type=int, default=860_000)
    parser.add_argument("--near", type=float)
    parser.add_argument("--out", type=Path, default=Path("results/contamination.json"))
    arguments = parser.parse_args()
    if arguments.rows < NUM_HIDDEN:
        parser.error(f"--rows must be at least {NUM_HIDDEN}, got {arguments.rows}")
    result = run(arguments.train, arguments.benchmark, arguments.rows, arguments.near)
    print(
        f"{result['rows']:,} rows ({result['file_bytes'] / 2**20:.0f} MiB) against {result['problems']:,} problems: "
        f"{result['cpu_seconds']:.0f} s of CPU time, {result['wall_seconds']:.0f} s by the clock, "
        f"{result['rows_per_cpu_second']:,.0f} rows per CPU second, "
        f"{result['memory_growth_bytes'] / 2**20:.0f} MiB more."
    )
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
