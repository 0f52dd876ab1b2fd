"""`gar eval table`: benchmarks and models in one table with intervals, and tests against the first model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gar.errors import ConfigError
from gar.evaluation.metrics import Measure
from gar.evaluation.model_comparison import Model, ModelComparison, columns, comparable
from gar.evaluation.paired import result_cells
from gar.evaluation.statistics import bootstrap_interval
from gar.evaluation.text_tables import NONE, TextTable, aligned, markdown_text


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkScore:
    """One model on one benchmark by pass@k or maj@k.

    Attributes:
        num_seeds: Training seeds; 1 where the model is one evaluation.
        mean: Over seeds and problems.
        interval: 95 % bootstrap interval over problems, and over seeds where there are several; None where all rates
            are equal.
    """

    benchmark: str
    measure: Measure
    k: int
    label: str
    num_problems: int
    num_seeds: int
    mean: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkTable:
    """Scores of all models, tests against the first, and sentences about what could not be compared."""

    labels: Sequence[str]
    scores: Sequence[BenchmarkScore]
    tests: Sequence[ModelComparison]
    notes: Sequence[str]


def benchmark_table(models: Sequence[Model], *, ks: Sequence[int] = ()) -> BenchmarkTable:
    """Scores of every model on every benchmark that it has, in order of first appearance.

    Args:
        models: The reference first.
        ks: Values of k for pass@k and maj@k; by default as `columns` says, for the fewest samples of any model.

    Raises:
        ConfigError: Two models have one label, or a k is larger than the number of samples.
    """
    labels = [model.label for model in models]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"two models are called {label}; name them: LABEL=FOLDER.")
    scores = []
    for name in dict.fromkeys(name for model in models for name in model.evaluations):
        having = [model for model in models if name in model.evaluations]
        fewest = min((m.evaluations[name][0] for m in having), key=lambda evaluation: evaluation.metrics.num_samples)
        scores += [_score(m, name, *column) for column in columns(ks, fewest) for m in having]
    tests, notes = comparable(models, ks=ks)
    return BenchmarkTable(labels=labels, scores=scores, tests=tests, notes=notes)


def _score(model: Model, benchmark: str, measure: Measure, k: int) -> BenchmarkScore:
    rates = model.rates(benchmark, measure, k)
    return BenchmarkScore(
        benchmark=benchmark,
        measure=measure,
        k=k,
        label=model.label,
        num_problems=rates.shape[1],
        num_seeds=rates.shape[0],
        mean=float(rates.mean()),
        interval=bootstrap_interval(rates) if np.ptp(rates) else None,
    )


def text_tables(table: BenchmarkTable) -> list[TextTable]:
    """The scores, a column for each model; and the tests, if there are any."""
    cells = {(s.benchmark, s.measure, s.k, s.label): s for s in table.scores}
    tables = [
        TextTable(
            title="Mean over problems, with its 95 % bootstrap interval.",
            headings=["benchmark", "problems", *table.labels],
            rows=[
                [
                    f"{score.benchmark} {_word(score.measure)}@{score.k}",
                    str(score.num_problems),
                    *(_cell(cells.get((score.benchmark, score.measure, score.k, label))) for label in table.labels),
                ]
                for score in {(s.benchmark, s.measure, s.k): s for s in table.scores}.values()
            ],
        )
    ]
    if table.tests:
        tables.append(
            TextTable(
                title=f"Differences from {table.labels[0]}, paired by {table.tests[0].result.pairs}: 95 % bootstrap "
                "interval, not corrected; two-sided p, Holm-corrected over models and benchmarks of one measure; MDE: "
                "the difference that these pairs detect with 80% power.",
                headings=["benchmark", "model", "difference", "95 %", "p", "MDE", "verdict"],
                rows=[_test_cells(test) for test in table.tests],
            )
        )
    return tables


def text(table: BenchmarkTable) -> str:
    """Aligned text for a terminal."""
    return "\n\n".join([*map(aligned, text_tables(table)), *table.notes]) + "\n"


def markdown(table: BenchmarkTable) -> str:
    """GitHub Markdown, with the notes as a list."""
    return markdown_text(text_tables(table), table.notes)


def _cell(score: BenchmarkScore | None) -> str:
    if score is None:
        return NONE
    return f"{score.mean:.3f}" + (
        "" if score.interval is None else f" ({score.interval[0]:.3f} to {score.interval[1]:.3f})"
    )


def _test_cells(test: ModelComparison) -> list[str]:
    return [f"{test.benchmark} {_word(test.measure)}@{test.k}", test.label, *result_cells(test.result)]


def _word(measure: Measure) -> str:
    return "maj" if measure == "majority" else "pass"
