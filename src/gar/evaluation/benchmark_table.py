"""`gar eval table`: benchmarks and models in one table with intervals, and tests against the first model.

A model is one evaluation per benchmark, or several: one per training seed, paired in their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gar.errors import ConfigError, DataError
from gar.evaluation.folder import evaluation_folders
from gar.evaluation.metrics import Measure, check_ks, default_ks
from gar.evaluation.paired import contrasts, problem_counts, scores
from gar.evaluation.text_tables import NONE, difference_cells, measure_name, rows_of, ungraded_notes
from gar.records import Run, leaves, open_run
from gar.records.evaluations import EvaluatedSet

# Settings in which two evaluations must agree, and their names in errors.
_COMMON = {
    "benchmark.problems_sha256": "the problems",
    "prompt.template": "prompt.template",
    "prompt.prompts_sha256": "the prompts",
    "prompt.chat_template_kwargs": "chat_template_kwargs",
    "verifier": "verify.verifier",
    "sampling.num_samples": "the number of samples",
    "sampling.temperature": "sampling.temperature",
    "sampling.top_p": "sampling.top_p",
    "sampling.max_new_tokens": "sampling.max_new_tokens",
    "format": "the format they were graded with",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model to compare: its label, and its evaluations by benchmark, one per training seed."""

    label: str
    evaluations: dict[str, list[Run]]


def load_model(argument: str) -> Model:
    """Load a model as the command line names it: `[LABEL=]FOLDER[,FOLDER ...]`, one folder per training seed.

    A folder is what `gar eval run` writes for a model, or one benchmark inside it.

    Raises:
        ConfigError: A folder is named twice.
        DataError: The seeds were evaluated differently, or on different benchmarks.
        RecordError: As `open_run`.
    """
    label, equals, paths = argument.rpartition("=")
    folders = [Path(path) for path in paths.split(",") if path]
    if len({path.resolve() for path in folders}) < len(folders) or not folders:
        raise ConfigError(f"'{argument}': expected [LABEL=]FOLDER[,FOLDER ...] with each folder once.")
    by_benchmark: dict[str, list[Run]] = {}
    for path in folders:
        for folder in evaluation_folders(path):
            run = open_run(folder.path)
            by_benchmark.setdefault(run.settings["benchmark"]["name"], []).append(run)
    for name, runs in by_benchmark.items():
        if len(runs) != len(folders):
            raise DataError(f"'{argument}': {len(runs)} of {len(folders)} folders hold {name}, expected all.")
        for reason in filter(None, (_unlike(runs[0], run) for run in runs[1:])):
            raise DataError(reason)
    return Model(label=label if equals else ",".join(path.name for path in folders), evaluations=by_benchmark)


def benchmark_table(models: Sequence[Model], *, ks: Sequence[int] = ()) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """`scores` of every model, its `contrasts` with the first model, and notes on what could not be compared.

    p-values are corrected for all models and benchmarks of one measure and k. `ks` are the k of pass@k and maj@k. By
    default they are pass@1, pass@n/2 and maj@n of the n samples of the model with the fewest.

    Raises:
        ConfigError: Two models have one label, or a k is larger than the number of samples.
    """
    labels = [model.label for model in models]
    if repeated := [label for label in labels if labels.count(label) > 1]:
        raise ConfigError(f"two models are called {repeated[0]}. Name them: LABEL=FOLDER.")
    first = models[0]
    evaluated = ((m.label, name, _result(run)) for m in models for name, runs in m.evaluations.items() for run in runs)
    notes = [f"{note}." for note in ungraded_notes(evaluated)]
    measures: dict[str, list[tuple[Measure, int]]] = {}
    for name in dict.fromkeys(name for model in models for name in model.evaluations):
        runs = [model.evaluations[name][0] for model in models if name in model.evaluations]
        measures[name] = _columns(ks, min(runs, key=lambda run: _result(run).num_samples))
    # Scores are shown of all models, tests only of those that were evaluated in the same way.
    alike = [first, *(_tested(model, first, notes) for model in models[1:])]
    tests = contrasts(_counts(alike), against={label: [first.label] for label in labels[1:]}, measures=measures)
    return scores(_counts(models), measures=measures, intervals=True), tests, notes


def _columns(ks: Sequence[int], evaluation: Run) -> list[tuple[Measure, int]]:
    n = _result(evaluation).num_samples
    check_ks(ks, n, evaluation.path)
    chosen = ks or sorted({1, *(k for k in default_ks(n) if n // 4 < k <= n // 2)})
    # maj@1 is pass@1, and maj@2 too, if no sample abstains: of two different answers either may win.
    majorities: list[tuple[Measure, int]] = [("majority", k) for k in (ks or (n,)) if k > 2]
    return [*(("pass", k) for k in chosen), *majorities]


def text_tables(scores: pd.DataFrame, tests: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The scores, a column for each model, and the tests, if there are any, by title."""
    labels = scores["label"].unique()
    cells = {(measure_name(row), row.label): _cell(row) for row in rows_of(scores)}
    problems = {measure_name(row): row.num_problems for row in rows_of(scores)}
    rows = [[name, number, *(cells.get((name, label), NONE) for label in labels)] for name, number in problems.items()]
    title = "Mean over problems, with its 95% bootstrap interval."
    tables = {title: pd.DataFrame(rows, columns=["benchmark", "problems", *labels])}
    if len(tests):
        title = (
            f"Differences from {labels[0]}, paired by {tests['pairs'].iloc[0]}: 95% bootstrap "
            "interval, not corrected. p: two-sided, Holm-corrected over models and benchmarks of one measure. "
            "Detectable: the difference that these pairs detect with 80% power."
        )
        ordered = sorted(rows_of(tests), key=lambda row: list(problems).index(measure_name(row)))
        rows = [[measure_name(row), row.label, *difference_cells(row)] for row in ordered]
        headings = ["benchmark", "model", "difference", "95%", "p", "detectable", "verdict"]
        tables[title] = pd.DataFrame(rows, columns=headings)
    return tables


def _counts(models: Sequence[Model]) -> pd.DataFrame:
    """The counts of all evaluations. An evaluation's seed is its place among the model's."""
    return problem_counts(
        (model.label, seed, name, part)
        for model in models
        for name, runs in model.evaluations.items()
        for seed, part in enumerate(map(_result, runs))
    )


def _result(run: Run) -> EvaluatedSet:
    return run.evaluations["after"][run.settings["benchmark"]["name"]]


def _tested(model: Model, first: Model, notes: list[str]) -> Model:
    """The evaluations of a model that can be tested against the first model. Notes the reason for the others."""
    tested = {}
    for name in (name for name in first.evaluations if name in model.evaluations):
        runs, others = model.evaluations[name], first.evaluations[name]
        reason = _unlike(others[0], runs[0])
        if len(runs) != len(others):
            seeds = f"{model.label} has {len(runs)} seeds and {first.label} has {len(others)}"
            reason = f"{seeds}: a pair is one seed of each."
        elif not reason and len(_result(runs[0]).problems) < 2:
            reason = f"{name} has one problem: a paired test needs at least two."
        if reason:
            notes.append(f"No test of {model.label} on {name}: {reason}")
        else:
            tested[name] = runs
    return Model(label=model.label, evaluations=tested)


def _unlike(first: Run, other: Run) -> str:
    """The problems, prompts, numbers of samples, sampling or formats in which evaluations differ. Empty if in none."""
    before, now = (dict(leaves(run.settings)) | {"format": _result(run).format} for run in (first, other))
    differing = [
        f"{text} ({before.get(name)} and {now.get(name)})"
        for name, text in _COMMON.items()
        if before.get(name) != now.get(name)
    ]
    text = f"{first.path} and {other.path} cannot be compared, since they differ in {'; '.join(differing)}."
    return f"{text} Evaluate both in the same way." if differing else ""


def _cell(row: Any) -> str:
    return f"{row.mean:.3f}" + (f" ({row.low:.3f} to {row.high:.3f})" if row.low == row.low else "")
