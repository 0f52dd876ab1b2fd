"""How far each row of a comparison lies below the best row, in percent.

    python -m paper.analyses.ablation main

The best row is the one with the best mean among the rows with the most seeds, so that one lucky seed does not count.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gar.analysis import COLORS, MUTED, paper_figure
from gar.comparison import RunResult
from paper.analyses.intervals import mean_interval
from paper.analyses.outputs import Output, add_caption, bare_rows, present
from paper.comparisons.results import finished_runs

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """A row against the best row of a set, in percent of the best row's mean.

    Attributes:
        mean: Mean of the row minus that of the best row, over the seeds of the row. It can be above 0 if the row has
            fewer seeds.
        low: Lower end of the 95% interval of the paired difference. NaN with fewer than two pairs.
        high: Upper end.
        seeds: The row's value for each seed, relative to the mean of the best row.
        score: The row's mean pass@k.
    """

    label: str
    method: str
    set_name: str
    k: int
    mean: float
    low: float
    high: float
    seeds: Floats
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """All rows on all sets at the smallest k, best first."""

    name: str
    k: int
    losses: Sequence[Loss]
    notes: Sequence[str]

    def on(self, set_name: str) -> list[Loss]:
        """Rows on one set, in the order of the first set."""
        order = [loss.label for loss in self.losses if loss.set_name == self.losses[0].set_name]
        return sorted((x for x in self.losses if x.set_name == set_name), key=lambda loss: order.index(loss.label))

    @property
    def set_names(self) -> list[str]:
        """Evaluation sets, in their order."""
        return list(dict.fromkeys(loss.set_name for loss in self.losses))


def ablation(folder: str | Path) -> Ablation:
    """Every row of a comparison in percent below the best row of its set.

    Raises:
        RecordError: There is nothing to read.
    """
    runs = finished_runs(folder)
    notes: list[str] = []
    labels = list(dict.fromkeys(run.label for run in runs))
    sets = list(dict.fromkeys(name for run in runs for name in run.sets))
    k = min(k for run in runs for part in run.sets.values() for k in part.known_rates)
    counts = {label: sum(run.label == label for run in runs) for label in labels}
    most = max(counts.values())
    fewer = [f"{label} ({count})" for label, count in counts.items() if count < most]
    if fewer:
        notes.append(f"Fewer than {most} seeds, so that rows see different seeds: {', '.join(fewer)}.")
    if most == 1:
        notes.append("One seed: the spread is unknown.")
    losses = [loss for name in sets for loss in _losses(runs, labels, name, k)]
    notes.append("The best row of a set is chosen by the same numbers, which flatters it.")
    return Ablation(name=Path(folder).stem, k=k, losses=losses, notes=notes)


def _losses(runs: Sequence[RunResult], labels: Sequence[str], set_name: str, k: int) -> list[Loss]:
    scores = {label: seed_scores(runs, label, set_name, k) for label in labels}
    scores = {label: values for label, values in scores.items() if values}
    means = {label: float(np.mean(list(values.values()))) for label, values in scores.items()}
    most = max(len(values) for values in scores.values())
    best = max((label for label in means if len(scores[label]) == most), key=lambda label: means[label])
    peak = means[best] or np.nan
    methods = {run.label: str(run.settings.get("method", run.label)) for run in runs}
    losses = []
    for label in sorted(scores, key=lambda label: -means[label]):
        values, reference = scores[label], scores[best]
        pairs = np.array([values[seed] - reference[seed] for seed in values if seed in reference])
        difference = mean_interval(pairs)
        low, high = (np.nan, np.nan) if label == best else (difference.low, difference.high)
        losses.append(
            Loss(
                label=label, method=methods[label], set_name=set_name, k=k, mean=100 * (means[label] / peak - 1),
                low=100 * low / peak, high=100 * high / peak,
                seeds=100 * (np.array(list(values.values())) / peak - 1), score=means[label],
            )
        )  # fmt: skip
    return losses


def seed_scores(runs: Sequence[RunResult], label: str, set_name: str, k: int) -> dict[int, float]:
    """pass@k of each seed of a row."""
    return {
        run.seed: run.sets[set_name].known_rates[k]
        for run in runs
        if run.label == label and set_name in run.sets and k in run.sets[set_name].known_rates
    }


def ablation_figure(ablation: Ablation) -> Figure:
    """A panel for each set: rows from best to worst, dots are seeds."""
    first = ablation.on(ablation.set_names[0])
    with paper_figure(0.95 + 0.19 * len(first)) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(ablation.set_names), sharey=True))
        for axes, name in zip(panels, ablation.set_names, strict=True):
            _draw_losses(axes, ablation.on(name), [loss.label for loss in first])
            axes.set_title(f"{name}, pass@{ablation.k}")
        panels[0].set_yticks(range(len(first)), [f"{loss.label} ({len(loss.seeds)})" for loss in first])
        panels[0].set_ylim(len(first) - 0.4, -0.6)
        add_caption(
            figure,
            f"{ablation.name}: n = number of seeds, in brackets. Dots: seeds. Bars: 95% intervals of the difference "
            "to the best row, paired by seed.",
        )
    return figure


def _draw_losses(axes: Axes, losses: Sequence[Loss], labels: Sequence[str]) -> None:
    axes.axvline(0, color=MUTED, linewidth=0.8)
    for loss in losses:
        y, color = labels.index(loss.label), COLORS[0]
        axes.plot(loss.seeds, np.full(len(loss.seeds), y + 0.24), ".", color=color, alpha=0.4, markersize=4, mew=0)
        if np.isfinite(loss.low):
            axes.plot([loss.low, loss.high], [y, y], color=color, linewidth=1.5)
        axes.plot(loss.mean, y, "o", color=color, markersize=4.5)
        axes.annotate(f"{loss.mean:.0f}%", (1.0, y), (3, 0), xycoords=("axes fraction", "data"),
                      textcoords="offset points", va="center", size=6.5)  # fmt: skip
    axes.set_xlabel("against the best row, %")
    bare_rows(axes)


def ablation_output(ablation: Ablation) -> Output:
    """The table, data and figure of the study."""
    names = ablation.set_names
    table: dict[str, list[Any]] = {}
    for name in names:
        for loss in ablation.on(name):
            interval = f" [{loss.low:+.0f}, {loss.high:+.0f}]" if np.isfinite(loss.low) else ""
            table.setdefault(loss.label, [loss.label, len(loss.seeds)]).extend(
                [loss.score, f"{loss.mean:+.1f}{interval}"]
            )
    data = {
        name: [getattr(loss, name) for loss in ablation.losses]
        for name in ("label", "method", "set_name", "k", "score", "mean", "low", "high")
    }
    return Output(
        name="ablation",
        title=f"{ablation.name}: pass@{ablation.k}, and percent below the best row [95%, paired by seed]",
        headings=("row", "seeds", *(text for name in names for text in (name, "below, %"))),
        rows=list(table.values()),
        data=pa.table(data | {"seeds": [loss.seeds.tolist() for loss in ablation.losses]}),
        figure=ablation_figure(ablation),
        notes=ablation.notes,
    )


def main() -> None:
    """Write data and figure beside the results, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="a comparison of paper/, or the YAML file of one that gar compare has run")
    parser.add_argument("--out", metavar="FOLDER", help="where the files go (default: results/NAME/analysis/ablation)")
    options = parser.parse_args()
    folder = f"results/{Path(options.results).stem}"
    present(ablation_output(ablation(options.results)), options.out or f"{folder}/analysis/ablation")


if __name__ == "__main__":
    main()
