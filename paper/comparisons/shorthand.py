"""Experts who write in shorthand: what is counted in a run, tests of three claims, tables. shorthand.md has the design.

python -m paper.comparisons.shorthand
"""

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gar import Problem, read_config
from gar.comparison import check_paired
from gar.evaluation import holm_adjusted, markdown_text, p_text, paired_t_p_value
from gar.records import open_run
from paper.comparisons.results import NAMES, Committed, mean_text, read_results
from paper.tasks.chains import ARITHMETIC, ROLES, TASKS, WHICH_WAY, ChainTask, parse_solution, write_solution
from paper.tasks.shorthand import shortened

MODELS: Mapping[str, ChainTask] = {"which-way": WHICH_WAY, "chain": ARITHMETIC}
TESTED_FORMS = ("half", "shorthand")
IMITATION = ("sft", "sft-grpo", "chord")
OWN = "rft"
CLAIMS = ("A", "B", "C")
ROWS = ("grpo", OWN, *(f"{name}-{form}" for form in TESTED_FORMS for name in ("gar", "shuffled", *IMITATION)))
NUM_SEEDS = 10
WINDOW = 10
KINDS = (*ROLES, *TESTED_FORMS, "other")
_DIGIT = re.compile(r"\d")

Claim = tuple[str, str, str]
"""Claim, model and form."""
Titled = tuple[str, pd.DataFrame]


def kind_of(response: str, prompt: str, task: ChainTask) -> str:
    """How a response is written: expert, habit, guess, a form of the expert's method (half, shorthand), or other."""
    problem = Problem(id="", prompt=prompt, answer="")
    role = task.role_of(parse_solution(response).method, problem)
    if role:
        return role
    working = _DIGIT.sub("0", response.partition("<answer>")[0])
    full = [write_solution(problem, task.method_of("expert", problem), wording) for wording in ("symbols", "words")]
    forms = {
        _DIGIT.sub("0", shortened(text, form).partition("<answer>")[0]): form
        for text, form in product(full, TESTED_FORMS)
    }
    return forms.get(working, "other")


def counted(run: Path) -> dict[str, Any]:
    """Shares of a run's responses by kind in its first and last steps and on the test problems, with three samples."""
    opened, task = open_run(run), task_of_run(run)
    names = ["prompt", "response", "verified", "num_tokens"]
    measured: dict[str, Any] = {"first": None, "last": None}
    if opened.steps:
        for name, steps in (("first", opened.steps[:WINDOW]), ("last", opened.steps[-WINDOW:])):
            measured[name] = shares(opened.rollouts(names, steps).to_pylist(), task)
    test = opened.samples("after").select(names).to_pylist()
    firsts = list({row["prompt"]: row for row in reversed(test)}.values())[-1:-4:-1]
    return measured | {
        "test": shares(test, task),
        "samples": [[json.loads(row["prompt"]), row["response"]] for row in firsts],
    }


def shares(rows: Iterable[Mapping[str, Any]], task: ChainTask) -> dict[str, float]:
    """Shares of all responses by kind, share of correct ones, and mean length in tokens."""
    rows = list(rows)
    counts = Counter(kind_of(row["response"], json.loads(row["prompt"]), task) for row in rows)
    means = {
        name: statistics.fmean(row[key] for row in rows)
        for name, key in (("correct", "verified"), ("tokens", "num_tokens"))
    }
    return {kind: counts[kind] / len(rows) for kind in KINDS} | means


def task_of_run(run: Path) -> ChainTask:
    """The task of a run of one of these comparisons, by its problems: runs/tasks/TASK-FORM/train.jsonl."""
    source = Path(read_config(run / "config.yaml")["data"]["source"])
    return TASKS[source.parent.name.rpartition("-")[0]]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claim on one model and form: the smallest lead of GAR, over the complete seeds, and its p after Holm."""

    other: str
    lead: float
    adjusted_p: float
    num_seeds: int

    @property
    def text(self) -> str:
        """Shown, refuted, or neither."""
        decided = self.adjusted_p < 0.05
        word = ("shown" if self.lead > 0 else "refuted") if decided else "open"
        return f"{self.lead:+.3f} to {self.other}, p {p_text(self.adjusted_p)}, {self.num_seeds} seeds: {word}"


def read_models(stem: str = "shorthand") -> dict[str, Committed]:
    """The committed results of each model, as far as there are any, checked for equal problems in each seed."""
    found = {model: read_results(f"{stem}-{model}") for model in MODELS if f"{stem}-{model}" in NAMES}
    for committed in found.values():
        check_paired(committed.results)
    return found


def complete_seeds(committed: Committed) -> list[int]:
    """The seeds that every row of the design has."""
    return sorted(set.intersection(*(set(committed.of_row(label)) for label in ROWS)))


def leads(committed: Committed, label: str, other: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How far a row is ahead of another one in test pass@1, by complete seed."""
    first, second = committed.of_row(label), committed.of_row(other)
    scores = [[row[seed].sets["test"].known_rates[1] for row in (first, second)] for seed in complete_seeds(committed)]
    return np.array([one - two for one, two in scores])


def verdicts(models: Mapping[str, Committed]) -> dict[Claim, Verdict]:
    """Every claim on each model that has all seeds, by form, with Holm's correction over all twelve.

    Claim B is against four rows. If GAR leads all of them, its smallest lead and the largest p count. Else the row
    that is furthest ahead counts.
    """
    found: dict[Claim, tuple[str, float, float, int]] = {}
    for claim, model, form in product(CLAIMS, models, TESTED_FORMS):
        others = {"A": ["grpo"], "B": [*(f"{name}-{form}" for name in IMITATION), OWN], "C": [f"shuffled-{form}"]}[
            claim
        ]
        tests = []
        for other in others:
            differences = leads(models[model], f"gar-{form}", other)
            if len(differences) == NUM_SEEDS:
                tests.append((float(differences.mean()), paired_t_p_value(differences) or 0.0, other, len(differences)))
        if tests:
            lead, p_value, other, count = min(tests)
            found[claim, model, form] = other, lead, max(p for _, p, *_ in tests) if lead > 0 else p_value, count
    adjusted = holm_adjusted(
        [p_value for *_, p_value, _ in found.values()], len(CLAIMS) * len(MODELS) * len(TESTED_FORMS)
    )
    return {
        key: Verdict(other=other, lead=lead, adjusted_p=p_value, num_seeds=count)
        for (key, (other, lead, _, count)), p_value in zip(found.items(), adjusted, strict=True)
    }


def score_table(title: str, committed: Committed) -> Titled:
    """pass@1 and pass@4 on the test problems, how many of the responses to them are of each kind, and their length."""
    rows = []
    for label in committed.against:
        runs = committed.of_row(label)
        measured = [committed.measured[f"{label}-seed-{seed}"] for seed in runs]
        ones, fours = ([run.sets["test"].known_rates[k] for run in runs.values()] for k in (1, 4))
        cells = [f"{statistics.fmean(one['test'][name] for one in measured):.2f}" for name in KINDS]
        tokens = [
            _mean([one[part]["tokens"] for one in measured if one[part]], 1) for part in ("first", "last", "test")
        ]
        rows.append([label, str(len(runs)), mean_text(ones), f"{statistics.fmean(fours):.3f}", *cells, *tokens])
    headings = ["row", "seeds", "test pass@1", "pass@4", *KINDS, "tokens, first", "last", "test"]
    return f"{title}, after training", pd.DataFrame(rows, columns=headings)


def claim_table(models: Mapping[str, Committed]) -> Titled:
    """A row for each claim, a column for each model and form. A model is tested once all its seeds are there."""
    found = verdicts(models)
    waiting = {model: f"{len(complete_seeds(models[model]))} of {NUM_SEEDS} seeds" for model in models}
    places = [*product(models, TESTED_FORMS)]
    rows = [
        [claim, *(found[claim, *place].text if (claim, *place) in found else waiting[place[0]] for place in places)]
        for claim in CLAIMS
    ]
    return "claims", pd.DataFrame(rows, columns=["claim", *(", ".join(place) for place in places)])


def training_table(title: str, committed: Committed) -> Titled:
    """Training responses of the first and the last ten steps: shares by kind, and of correct ones."""
    rows = []
    for label in committed.against:
        runs = [committed.measured[f"{label}-seed-{seed}"] for seed in committed.of_row(label)]
        if all(run["first"] for run in runs):
            columns = (*KINDS, "correct")
            rows.append(
                [
                    label,
                    *(
                        ", ".join(_mean([run[part][name] for run in runs], 2) for part in ("first", "last"))
                        for name in columns
                    ),
                ]
            )
    return f"{title}, first and last ten steps of training", pd.DataFrame(rows, columns=["row", *KINDS, "correct"])


def sample_table(title: str, committed: Committed) -> Titled:
    """Three responses of the first run of each row after training."""
    rows = []
    for label in committed.against:
        seed = min(committed.of_row(label))
        samples = committed.measured[f"{label}-seed-{seed}"]["samples"]
        rows += [
            [label if i == 0 else "", f"`{prompt}`", f"`{response}`"] for i, (prompt, response) in enumerate(samples)
        ]
    return f"{title}, three responses", pd.DataFrame(rows, columns=["row", "problem", "response"])


def _mean(values: Sequence[float], digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f}" if values else "-"


def main() -> None:
    """Print."""
    models = read_models()
    parts = [
        *models.items(),
        *((f"{name}, exploratory", found) for name, found in read_models("shorthand-more").items()),
    ]
    tables = [table(name, found) for name, found in parts for table in (score_table, training_table, sample_table)]
    print(markdown_text(dict([claim_table(models), *tables]), []))


if __name__ == "__main__":
    main()
