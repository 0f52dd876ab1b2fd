"""`gar eval compare`: is one model better than another on the same problems? Paired, with what could have been seen.

A model is one evaluation per benchmark, or several: one per training seed. With several seeds the pair is a seed, as in
the paper; with one, the pair is a problem, and the result speaks of these two models alone.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gar.errors import ConfigError, DataError
from gar.evaluation.folder import EvaluationFolder, evaluation_folders
from gar.evaluation.metrics import ProblemCounts, default_ks, read_counts
from gar.evaluation.statistics import PairedTest, Verdict, bootstrap_interval, holm_adjusted, paired_test, verdict
from gar.records.unfinished import differences

Measure = Literal["pass", "majority"]

# What two evaluations must have in common, besides their models.
_COMMON = (
    "benchmark.problems_sha256",
    "prompt.form",
    "prompt.prompts_sha256",
    "sampling.num_samples",
    "sampling.temperature",
    "sampling.top_p",
    "sampling.max_new_tokens",
)
_SAID = {
    "benchmark.problems_sha256": "the problems",
    "prompt.prompts_sha256": "the prompts",
    "sampling.num_samples": "the number of samples",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One finished evaluation: of one model and seed, on one benchmark."""

    folder: EvaluationFolder
    identity: dict[str, Any]
    format: str
    counts: tuple[ProblemCounts, ...]

    @property
    def benchmark(self) -> str:
        """Its name."""
        return self.identity["benchmark"]["name"]

    @property
    def num_samples(self) -> int:
        """Per problem."""
        return self.identity["sampling"]["num_samples"]

    def rates(self, measure: Measure, k: int) -> list[float]:
        """pass@k or maj@k of each problem."""
        return [each.pass_at(k) if measure == "pass" else each.majority_at(k) for each in self.counts]


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """What is compared: a label, and its evaluations by benchmark, one per seed."""

    label: str
    evaluations: dict[str, tuple[Evaluation, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One model against the first, on one benchmark, by one measure.

    Attributes:
        benchmark: Its name.
        measure: pass or majority.
        k: Of pass@k or maj@k.
        label: The model.
        against: The first model.
        num_problems: Paired problems.
        num_seeds: Paired seeds.
        score: Of the model, the mean over problems and seeds.
        reference: The same of the first model.
        difference: Score minus reference.
        low: Of the 95 % bootstrap interval of the difference, over problems, and over seeds where there are several.
        high: The same.
        pairs: What the tests pair: seeds where there are several, else problems.
        t_p_value: Two-sided paired t-test over the pairs; None where all differences are the same.
        permutation_p_value: Two-sided, by flipping signs.
        holm_p_value: The one that counts, corrected for all models and benchmarks of this measure and k.
        minimum_detectable_effect: Seen four times in five with these pairs; None where the differences do not spread.
        verdict: In words; a tie is no win.
    """

    benchmark: str
    measure: Measure
    k: int
    label: str
    against: str
    num_problems: int
    num_seeds: int
    score: float
    reference: float
    difference: float
    low: float
    high: float
    pairs: Literal["problems", "seeds"]
    t_p_value: float | None
    permutation_p_value: float | None
    holm_p_value: float | None
    minimum_detectable_effect: float | None
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def load_model(argument: str) -> Model:
    """A model from the command line: `[LABEL=]FOLDER[,FOLDER ...]`, one folder per seed.

    A folder is what `gar eval generate` writes for a model, or one benchmark inside it.

    Raises:
        ConfigError: A folder is named twice.
        DataError: Seeds of one model were evaluated differently or on different benchmarks, or are the same.
        RecordError: A folder is not there, or not scored.
    """
    label, equals, paths = argument.rpartition("=")
    folders = [Path(path) for path in paths.split(",") if path]
    if len({path.resolve() for path in folders}) < len(folders) or not folders:
        raise ConfigError(f"'{argument}': expected [LABEL=]FOLDER[,FOLDER ...] with each folder once.")
    by_benchmark: dict[str, list[Evaluation]] = {}
    for path in folders:
        for folder in evaluation_folders(path):
            evaluation = load_evaluation(folder)
            by_benchmark.setdefault(evaluation.benchmark, []).append(evaluation)
    for name, evaluations in by_benchmark.items():
        if len(evaluations) != len(folders):
            raise DataError(f"'{argument}': {len(evaluations)} of {len(folders)} folders hold {name}; expected all.")
        for evaluation in evaluations[1:]:
            check_comparable(evaluations[0], evaluation)
    return Model(
        label=label if equals else ",".join(path.name for path in folders),
        evaluations={name: tuple(evaluations) for name, evaluations in by_benchmark.items()},
    )


def load_evaluation(folder: EvaluationFolder) -> Evaluation:
    """A finished evaluation.

    Raises:
        RecordError: It is not there, or has no metrics yet.
    """
    identity = folder.identity()
    metrics = folder.metrics()
    return Evaluation(folder=folder, identity=identity, format=metrics["format"], counts=tuple(read_counts(metrics)))


def check_comparable(first: Evaluation, other: Evaluation) -> None:
    """Refuse evaluations on different problems, prompts, numbers of samples or sampling.

    Raises:
        DataError: Says in what they differ.
    """
    found = differences(first.identity, other.identity)
    unlike = [
        f"{_SAID.get(name, name)} ({before} and {now})" for name, (before, now) in found.items() if name in _COMMON
    ]
    if first.format != other.format:
        unlike.append(f"the format they were graded with ({first.format} and {other.format})")
    if unlike:
        raise DataError(
            f"{first.folder.path} and {other.folder.path} cannot be compared, since they differ in "
            f"{'; '.join(unlike)}. Evaluate both in the same way."
        )


def compare(models: Sequence[Model], *, ks: Sequence[int] = ()) -> list[Row]:
    """Every model against the first, on every benchmark.

    Args:
        models: At least two, with the same benchmarks and the same number of seeds.
        ks: pass@k and maj@k for these k; none takes 1 and the largest half, and the number of samples for maj.

    Returns:
        A row per benchmark, measure, k and model.

    Raises:
        ConfigError: Fewer than two models, or a k larger than the number of samples.
        DataError: Different benchmarks, problems, prompts, numbers of samples or of seeds; or a set of one problem.
    """
    if len(models) < 2:
        raise ConfigError("a comparison needs at least two models.")
    reference = models[0]
    for model in models[1:]:
        _check_pair(reference, model)
    columns: dict[tuple[Measure, int], list[tuple[str, Model]]] = {}
    for name, evaluations in reference.evaluations.items():
        for column in _columns(ks, evaluations[0]):
            columns.setdefault(column, []).extend((name, model) for model in models[1:])
    rows: list[Row] = []
    for (measure, k), cells in columns.items():
        rows += _rows(reference, cells, measure, k)
    order = list(reference.evaluations)
    return sorted(rows, key=lambda row: order.index(row.benchmark))


def _check_pair(reference: Model, model: Model) -> None:
    if model.evaluations.keys() != reference.evaluations.keys():
        here, there = (", ".join(sorted(each.evaluations)) for each in (model, reference))
        raise DataError(f"{model.label} was evaluated on {here}, {reference.label} on {there}: expected the same sets.")
    for name, evaluations in model.evaluations.items():
        others = reference.evaluations[name]
        if len(evaluations) != len(others):
            raise DataError(
                f"{model.label} has {len(evaluations)} seeds and {reference.label} has {len(others)}: a pair is one "
                "seed of each."
            )
        check_comparable(others[0], evaluations[0])
        if len(evaluations[0].counts) < 2:
            raise DataError(f"{name} has one problem: there is nothing to measure a difference by.")


def _columns(ks: Sequence[int], evaluation: Evaluation) -> list[tuple[Measure, int]]:
    n = evaluation.num_samples
    for k in ks:
        if k > n:
            raise ConfigError(f"pass@{k} needs {k} samples per problem; {evaluation.folder.path} has {n}.")
    chosen = ks or sorted({1, *(k for k in default_ks(n) if n // 4 < k <= n // 2)})
    passes: list[tuple[Measure, int]] = [("pass", k) for k in chosen]
    # maj@1 is pass@1, and so is maj@2: of two different answers either may win.
    majorities: list[tuple[Measure, int]] = [("majority", k) for k in (ks or (n,)) if k > 2]
    return passes + majorities


def _rows(reference: Model, cells: Sequence[tuple[str, Model]], measure: Measure, k: int) -> list[Row]:
    """One measure over all benchmarks and models, corrected together."""
    pairs = []
    num_seeds = len(next(iter(reference.evaluations.values())))
    for name, model in cells:
        own, theirs = (
            np.array([evaluation.rates(measure, k) for evaluation in each.evaluations[name]])
            for each in (model, reference)
        )
        pairs.append((name, model, own, theirs, _test(own - theirs)))
    p_values = [p_value for *_, test in pairs if (p_value := _p_value(test, num_seeds)) is not None]
    holm = iter(holm_adjusted(p_values))
    rows = []
    for name, model, own, theirs, test in pairs:
        low, high = bootstrap_interval(own - theirs)
        corrected = None if _p_value(test, num_seeds) is None else next(holm)
        rows.append(
            Row(
                benchmark=name,
                measure=measure,
                k=k,
                label=model.label,
                against=reference.label,
                num_problems=own.shape[1],
                num_seeds=own.shape[0],
                score=float(own.mean()),
                reference=float(theirs.mean()),
                difference=test.mean,
                low=low,
                high=high,
                pairs="problems" if own.shape[0] == 1 else "seeds",
                t_p_value=test.t_p_value,
                permutation_p_value=test.permutation_p_value,
                holm_p_value=corrected,
                minimum_detectable_effect=test.minimum_detectable_effect,
                verdict=verdict(test.mean, corrected),
            )
        )
    return rows


def _test(differences: np.ndarray) -> PairedTest:
    """Over seeds where there are several, else over problems. [seeds, problems]"""
    return paired_test(differences[0] if len(differences) == 1 else differences.mean(axis=1))


def _p_value(test: PairedTest, num_seeds: int) -> float | None:
    """The one that counts: of the t-test over seeds, as in the paper; by permutation over problems."""
    return test.permutation_p_value if num_seeds == 1 else test.p_value
