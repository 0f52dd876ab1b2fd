"""A verifier that leaks: exact accuracy of runs whose grader sees a part of the answer, and the claims of leaky.md.

python -m paper.comparisons.leaky
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gar import Problem
from gar.evaluation import markdown_text
from gar.records import open_run
from paper.comparisons.budget import interval
from paper.comparisons.results import NAMES, Committed, mean_text, read_results
from paper.comparisons.shorthand import KINDS, WINDOW, kind_of
from paper.tasks.chains import ARITHMETIC, parse_solution, right_steps

COMPARISONS = ("leaky-one-bit", "leaky-one-of-four", "leaky-none")
NUM_SEEDS = 10
GRPO = ("grpo-2e-4", "grpo-5e-4", "grpo-1e-3")
OTHERS = ("gar-full", "shuffled-full", "sft-grpo-full", "length-full", "text-full")
"""The rows with full experts that SFT is compared with, beside GRPO."""
_LEAD, _WITHIN = 0.2, 0.03


def counted(run: Path) -> dict[str, Any]:
    """Right and accepted responses and their kinds: on the test problems, and in the first and last training steps."""
    opened, names = open_run(run), ["prompt", "response", "answer", "gold", "verified"]
    measured = {"test": shares(opened.samples("after").select(names).to_pylist())}
    if opened.steps:
        for name, steps in (("first", opened.steps[:WINDOW]), ("last", opened.steps[-WINDOW:])):
            measured[name] = shares(opened.rollouts(names, steps).to_pylist())
    return measured


def shares(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Shares of responses: with the right answer, accepted by the grader, sound, of each kind.

    A sound response writes a value for each step, and all of them are right.
    """
    rows = list(rows)
    counts = Counter(kind_of(row["response"], json.loads(row["prompt"]), ARITHMETIC) for row in rows)
    return {
        "exact": statistics.fmean(row["answer"] == row["gold"] for row in rows),
        "accepted": statistics.fmean(bool(row["verified"]) for row in rows),
        "sound": statistics.fmean(_is_sound(row) for row in rows),
    } | {kind: counts[kind] / len(rows) for kind in KINDS}


def _is_sound(row: Mapping[str, Any]) -> bool:
    problem = Problem(id="", prompt=json.loads(row["prompt"]), answer="")
    steps = right_steps(problem, parse_solution(row["response"]).values)
    return len(steps) == len(str(problem.prompt)) // 2 - 1 and all(steps)


def exact(committed: Committed, label: str) -> dict[int, float]:
    """Exact pass@1 of a row by seed."""
    return {seed: committed.measured[f"{label}-seed-{seed}"]["test"]["exact"] for seed in committed.of_row(label)}


def row_table(committed: Committed) -> pd.DataFrame:
    """Exact pass@1, what the grader accepts and the kinds of responses of each row, means over seeds."""
    rows = []
    for label in committed.against:
        if not (seeds := committed.of_row(label)):
            continue
        test = [committed.measured[f"{label}-seed-{seed}"]["test"] for seed in seeds]
        rows.append(
            {
                "row": label,
                "seeds": len(seeds),
                "exact pass@1": mean_text([one["exact"] for one in test]),
                "accepted": mean_text([one["accepted"] for one in test]),
                "sound": mean_text([one["sound"] for one in test]),
                **{kind: f"{statistics.fmean(one[kind] for one in test):.2f}" for kind in KINDS},
            }
        )
    return pd.DataFrame(rows)


def leads(committed: Committed, label: str, other: str) -> list[float]:
    """How far a row's exact pass@1 is above that of another row, by seed that both have."""
    own, its = exact(committed, label), exact(committed, other)
    return [own[seed] - its[seed] for seed in sorted(own.keys() & its.keys())]


def best_grpo(committed: Committed) -> str:
    """The learning rate of plain GRPO with the highest mean of exact pass@1, over the seeds that all rates have."""
    found = {label: exact(committed, label) for label in GRPO}
    seeds = set.intersection(*(set(part) for part in found.values()))
    return max(GRPO, key=lambda label: statistics.fmean(found[label][seed] for seed in seeds))


def claims(committed: Committed) -> pd.DataFrame:
    """The four claims of leaky.md. Each is shown, refuted or open once its rows have all seeds."""
    best = best_grpo(committed)
    tests: dict[str, list[tuple[str, str, float, int]]] = {
        "L1": [("gar-full", best, _LEAD, 1)],
        "L2": [("shuffled-full", "gar-full", -_WITHIN, 1)],
        "L3": [("sft-full", other, 0.0, 1) for other in (*GRPO, *OTHERS)],
        "L4": [("gar-shorthand", best, 0.0, -1)],
    }
    rows = []
    for claim, pairs in tests.items():
        outcomes = []
        for label, other, bound, sign in pairs:
            differences = leads(committed, label, other)
            outcomes.append(outcome(differences, bound, sign))
            rows.append(
                {
                    "claim": claim,
                    "difference": f"{label} minus {other}",
                    "seeds": len(differences),
                    "interval": interval_text(differences),
                    "outcome": outcomes[-1],
                }
            )
        if len(pairs) > 1:
            whole = next((word for word in ("refuted", "waiting", "open") if word in outcomes), "shown")
            rows.append({"claim": claim, "difference": "as a whole", "seeds": "", "interval": "", "outcome": whole})
    return pd.DataFrame(rows)


def outcome(differences: Sequence[float], bound: float, sign: int) -> str:
    """Whether the 95% interval of a mean lies above a bound (sign 1) or below it (sign -1). Waiting until all seeds."""
    if len(differences) < NUM_SEEDS:
        return "waiting"
    low, high = interval(differences)
    above, below = low > bound, high < bound
    return ("shown" if sign > 0 else "refuted") if above else ("refuted" if sign > 0 else "shown") if below else "open"


def interval_text(differences: Sequence[float]) -> str:
    """A mean with its 95% interval, if there are two values."""
    if len(differences) < 2:
        return ", ".join(f"{value:+.3f}" for value in differences)
    low, high = interval(differences)
    return f"{statistics.fmean(differences):+.3f} ({low:+.3f} to {high:+.3f})"


def main() -> None:
    """Print the tables of every comparison that has results, and the claims about one bit."""
    for name in filter(NAMES.__contains__, COMPARISONS):
        committed = read_results(name)
        shown = {name: row_table(committed)} | ({"Claims": claims(committed)} if name == COMPARISONS[0] else {})
        print(markdown_text(shown, []))


if __name__ == "__main__":
    main()
