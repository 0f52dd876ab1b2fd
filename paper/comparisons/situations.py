"""When does the reward pay? Situations by methods, from the committed results: the first table of docs/evidence.md.

python -m paper.comparisons.situations
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from gar.evaluation import markdown_text, p_text, paired_t_p_value, sign_flip_p_value
from paper.comparisons.budget import interval
from paper.comparisons.leaky import GRPO, best_grpo
from paper.comparisons.results import NAMES, Committed, mean_text, read_results

BASELINE, REWARD = "plain GRPO", "GAR-GRPO"
METHODS = (BASELINE, REWARD, "SFT", "SFT, then GRPO", "self-distillation")
NOT_RUN = "not run"
FEWEST_SEEDS = 4
"""With fewer seeds no method is marked as best, and the picture leaves the row out."""
BEST_GRPO = "|".join(GRPO)
"""Stands for the rate of plain GRPO that ends highest."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A row of the table.

    Attributes:
        title: What the experts write, or what else is special.
        task: The task.
        steps: Optimizer steps.
        rate: Learning rate of GRPO and GAR.
        rows: For each method its comparison and row. A comparison without results is "not run".
        command: What prints the numbers: `.NAME` is `python -m paper.comparisons.NAME`, another name
            `python -m paper.comparisons NAME`.
    """

    title: str
    task: str
    steps: int
    rate: str
    rows: Mapping[str, tuple[str, str]]
    command: str


def _of(comparison: str, *labels: str, sdpo: tuple[str, str] | None = None) -> dict[str, tuple[str, str]]:
    """The rows of one comparison in the order of METHODS, and self-distillation from its own comparison."""
    rows = {name: (comparison, label) for name, label in zip(METHODS, labels, strict=False)}
    return rows | ({"self-distillation": sdpo} if sdpo else {})


_FULL = ("grpo", "gar-grpo", "sft", "sft-grpo")
_SKIP = ("grpo", "gar-half", "sft-half", "sft-grpo-half")
SITUATIONS = [
    Situation(title="experts write every step", task="which way", steps=100, rate="1.4e-4", command=".signals",
              rows=_of("signals-which-way", *_FULL, sdpo=("self-distillation-100-which-way", "sdpo-full-100"))),
    Situation(title="experts write every step", task="chain", steps=100, rate="2e-4", command=".signals",
              rows=_of("signals-chain", *_FULL, sdpo=("self-distillation-100-chain", "sdpo-full-100"))),
    Situation(title="experts skip the results", task="which way", steps=100, rate="1.4e-4", command=".shorthand",
              rows=_of("shorthand-which-way", *_SKIP, sdpo=("self-distillation-100-which-way", "sdpo-half-100"))),
    Situation(title="the same, three times the steps", task="which way", steps=300, rate="1.4e-4", command=".budget",
              rows=_of("shorthand-budget-which-way", *_SKIP[:2], sdpo=("self-distillation-which-way", "sdpo-half"))),
    Situation(title="experts skip the results", task="chain", steps=100, rate="2e-4", command=".shorthand",
              rows=_of("shorthand-chain", *_SKIP, sdpo=("self-distillation-100-chain", "sdpo-half-100"))),
    Situation(title="the same, three times the steps", task="chain", steps=300, rate="2e-4", command=".budget",
              rows=_of("shorthand-budget-chain", *_SKIP[:2], sdpo=("self-distillation-chain", "sdpo-half"))),
    Situation(title="experts use a worse method", task="chain", steps=60, rate="1e-3", command="worse-expert",
              rows=_of("worse-expert", "grpo", "expert-running")),
    Situation(title="experts write in another style", task="whose voice", steps=100, rate="1.4e-4", command=".signals",
              rows=_of("signals-whose-voice", *_FULL)),
    Situation(title="a rate that suits plain GRPO", task="chain", steps=60, rate="1e-3", command="main",
              rows=_of("main", "grpo", "gar-grpo")),
    Situation(title="a leaky verifier, every step", task="chain", steps=100, rate="5e-4", command=".leaky",
              rows=_of("leaky-one-bit", BEST_GRPO, "gar-full", "sft-full", "sft-grpo-full")),
    Situation(title="a leaky verifier, results skipped", task="chain", steps=100, rate="5e-4", command=".leaky",
              rows=_of("leaky-one-bit", BEST_GRPO, "gar-shorthand", "sft-shorthand", "sft-grpo-shorthand")),
    Situation(title="SmolLM2-135M, steps skipped", task="words", steps=60, rate="1e-4", command="word-shorthand",
              rows=_of("word-shorthand", "grpo", "gar-grpo", "sft")),
]  # fmt: skip


def scores(situation: Situation, method: str) -> dict[int, float] | None:
    """Test pass@1 of a method by seed, exact for leaky verifiers. None if the method is not in the situation."""
    if method not in situation.rows:
        return None
    comparison, label = situation.rows[method]
    if comparison not in NAMES:
        return {}
    committed = read_results(comparison)
    label = best_grpo(committed) if label == BEST_GRPO else label
    runs = committed.of_row(label)
    if method == "self-distillation" and len(runs) < FEWEST_SEEDS:  # its runs go on
        return {}
    return {seed: _score(committed, label, seed, situation.steps) for seed in runs}


def _score(committed: Committed, label: str, seed: int, steps: int) -> float:
    result, measured = committed.results[label, seed], committed.measured[f"{label}-seed-{seed}"] or {}
    if committed.name.startswith("leaky"):
        return measured["test"]["exact"]
    if committed.name.startswith("self-distillation"):
        return measured["curve"][str(steps)]
    return result.sets["test"].known_rates[1]


def difference_text(values: Sequence[float]) -> str:
    """A mean difference with its 95% t-interval."""
    low, high = interval(values)
    return f"{statistics.fmean(values):+.3f} ({low:+.3f} to {high:+.3f})"


def best_methods(found: Mapping[str, Mapping[int, float]]) -> set[str]:
    """The highest mean, and the methods whose difference to it, paired by seed, has a 95% interval around 0.

    None while a method has fewer than `FEWEST_SEEDS` seeds.
    """
    if min(map(len, found.values()), default=0) < FEWEST_SEEDS:
        return set()
    highest = max(found, key=lambda method: statistics.fmean(found[method].values()))
    equal = {highest}
    for method, part in found.items():
        leads = paired_leads(found[highest], part)
        if len(leads) > 1 and interval(leads)[0] <= 0:
            equal.add(method)
    return equal


def table() -> pd.DataFrame:
    """Every situation: means of all methods, and GAR minus GRPO with its interval and two p's."""
    rows = []
    for situation in SITUATIONS:
        found = {method: scores(situation, method) for method in METHODS}
        there = {method: part for method, part in found.items() if part}
        leads = paired_leads(found[REWARD] or {}, found[BASELINE] or {})
        p_values = [p_text(p) for p in (paired_t_p_value(leads), sign_flip_p_value(leads))] if len(leads) > 1 else []
        rows.append(
            {
                "situation": f"{situation.title} (*{situation.task}*)",
                "steps, rate": f"{situation.steps}, {situation.rate}",
                "seeds": str(len(leads)) if leads else NOT_RUN,
                **{method: _cell(method, found[method], best_methods(there)) for method in METHODS},
                "GAR minus GRPO": difference_text(leads) if len(leads) > 1 else "",
                "p": ", ".join(p_values),
                "command": f"`{situation.command}`",
            }
        )
    return pd.DataFrame(rows)


def paired_leads(own: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """Differences by the seeds that both have."""
    return [own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())]


def _cell(method: str, found: Mapping[int, float] | None, best: set[str]) -> str:
    if found is None:
        return ""
    if not found:
        return NOT_RUN
    text = mean_text([*found.values()])
    return f"**{text}**" if method in best else text


def main() -> None:
    """Print."""
    print(markdown_text({"When does the reward pay?": table()}, []))


if __name__ == "__main__":
    main()
