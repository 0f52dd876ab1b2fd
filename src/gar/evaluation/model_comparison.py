"""Is one model better than another on the same problems? For `gar eval table`.

A model is one evaluation per benchmark, or several: one per training seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gar.errors import ConfigError, DataError
from gar.evaluation.folder import EvaluationFolder, Metrics, evaluation_folders
from gar.evaluation.metrics import Measure, default_ks, rate
from gar.evaluation.paired import PairedComparison, Rates, compare_paired
from gar.records.dotted import differences

# Fields in which two evaluations must agree, and their names in errors.
_COMMON = {
    "benchmark.problems_sha256": "the problems",
    "prompt.form": "prompt.form",
    "prompt.prompts_sha256": "the prompts",
    "sampling.num_samples": "the number of samples",
    "sampling.temperature": "sampling.temperature",
    "sampling.top_p": "sampling.top_p",
    "sampling.max_new_tokens": "sampling.max_new_tokens",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One finished evaluation of one model and training seed on one benchmark.

    Attributes:
        folder: Its folder.
        identity: The content of `set.json`: benchmark, prompt, model and sampling.
        metrics: Its numbers.
    """

    folder: EvaluationFolder
    identity: dict[str, Any]
    metrics: Metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model to compare: its label, and its evaluations by benchmark, one per training seed."""

    label: str
    evaluations: dict[str, tuple[Evaluation, ...]]

    def rates(self, benchmark: str, measure: Measure, k: int) -> Rates:
        """pass@k or maj@k, [seeds, problems]."""
        return np.array(
            [
                [rate(problem, measure, metrics.num_samples, k) for problem in metrics.problems]
                for metrics in (evaluation.metrics for evaluation in self.evaluations[benchmark])
            ]
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelComparison:
    """One model against the first, on one benchmark, by pass@k or maj@k.

    p-values are corrected for all models and benchmarks of this measure and k.
    """

    benchmark: str
    measure: Measure
    k: int
    label: str
    against: str
    result: PairedComparison


def load_model(argument: str) -> Model:
    """Load a model as the command line names it: `[LABEL=]FOLDER[,FOLDER ...]`, one folder per training seed.

    A folder is what `gar eval generate` writes for a model, or one benchmark inside it.

    Raises:
        ConfigError: A folder is named twice.
        DataError: The seeds were evaluated differently, or on different benchmarks.
        RecordError: A folder does not exist, or is not scored.
    """
    label, equals, paths = argument.rpartition("=")
    folders = [Path(path) for path in paths.split(",") if path]
    if len({path.resolve() for path in folders}) < len(folders) or not folders:
        raise ConfigError(f"'{argument}': expected [LABEL=]FOLDER[,FOLDER ...] with each folder once.")
    by_benchmark: dict[str, list[Evaluation]] = {}
    for path in folders:
        for folder in evaluation_folders(path):
            evaluation = Evaluation(folder=folder, identity=folder.identity(), metrics=folder.metrics())
            by_benchmark.setdefault(evaluation.identity["benchmark"]["name"], []).append(evaluation)
    for name, evaluations in by_benchmark.items():
        if len(evaluations) != len(folders):
            raise DataError(f"'{argument}': {len(evaluations)} of {len(folders)} folders hold {name}; expected all.")
        for evaluation in evaluations[1:]:
            _check_comparable(evaluations[0], evaluation)
    return Model(
        label=label if equals else ",".join(path.name for path in folders),
        evaluations={name: tuple(evaluations) for name, evaluations in by_benchmark.items()},
    )


def comparable(models: Sequence[Model], *, ks: Sequence[int] = ()) -> tuple[list[ModelComparison], list[str]]:
    """Compare every model with the first as far as they were evaluated alike.

    Returns:
        A row per benchmark, measure, k and model, and a sentence for each benchmark on which a model cannot be
        compared.

    Raises:
        ConfigError: A k is larger than the number of samples.
    """
    first, *others = models
    pairs, notes = [], []
    for name in first.evaluations:
        for model in others:
            if name not in model.evaluations:
                continue
            try:
                _check_benchmark(first, model, name)
            except DataError as error:
                notes.append(f"No test of {model.label} on {name}: {error}")
            else:
                pairs.append((name, model))
    return _compared(first, pairs, ks), notes


def _compared(first: Model, pairs: Sequence[tuple[str, Model]], ks: Sequence[int]) -> list[ModelComparison]:
    """Models against the first on benchmarks, p-values corrected for all of one measure and k."""
    cells: dict[tuple[Measure, int], list[tuple[str, Model]]] = {}
    for name, model in pairs:
        for column in columns(ks, first.evaluations[name][0]):
            cells.setdefault(column, []).append((name, model))
    rows = []
    for (measure, k), members in cells.items():
        rates = [(model.rates(name, measure, k), first.rates(name, measure, k)) for name, model in members]
        rows += [
            ModelComparison(benchmark=name, measure=measure, k=k, label=model.label, against=first.label, result=result)
            for (name, model), result in zip(members, compare_paired(rates), strict=True)
        ]
    order = list(first.evaluations)
    return sorted(rows, key=lambda row: order.index(row.benchmark))


def _check_comparable(first: Evaluation, other: Evaluation) -> None:
    """Reject evaluations on different problems, prompts, numbers of samples, sampling or formats."""
    unlike = [
        f"{_COMMON[name]} ({before} and {now})"
        for name, (before, now) in differences(first.identity, other.identity).items()
        if name in _COMMON
    ]
    if first.metrics.format != other.metrics.format:
        unlike.append(f"the format they were graded with ({first.metrics.format} and {other.metrics.format})")
    if unlike:
        raise DataError(
            f"{first.folder.path} and {other.folder.path} cannot be compared, since they differ in "
            f"{'; '.join(unlike)}. Evaluate both in the same way."
        )


def _check_benchmark(first: Model, model: Model, name: str) -> None:
    evaluations, others = model.evaluations[name], first.evaluations[name]
    if len(evaluations) != len(others):
        raise DataError(
            f"{model.label} has {len(evaluations)} seeds and {first.label} has {len(others)}: a pair is one seed of "
            "each."
        )
    _check_comparable(others[0], evaluations[0])
    if len(evaluations[0].metrics.problems) < 2:
        raise DataError(f"{name} has one problem: a paired test needs at least two.")


def columns(ks: Sequence[int], evaluation: Evaluation) -> list[tuple[Measure, int]]:
    """Measures and k of a benchmark: those asked for, or by default pass@1, pass@n/2 and maj@n of n samples.

    Raises:
        ConfigError: A k is larger than n.
    """
    n = evaluation.metrics.num_samples
    for k in ks:
        if k > n:
            raise ConfigError(f"pass@{k} needs {k} samples per problem; {evaluation.folder.path} has {n}.")
    chosen = ks or sorted({1, *(k for k in default_ks(n) if n // 4 < k <= n // 2)})
    passes: list[tuple[Measure, int]] = [("pass", k) for k in chosen]
    # maj@1 and maj@2 are pass@1: of two different answers either may win.
    majorities: list[tuple[Measure, int]] = [("majority", k) for k in (ks or (n,)) if k > 2]
    return passes + majorities
