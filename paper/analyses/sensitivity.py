"""How much a setting matters: curves over the rows of a comparison that differ only in this number.

python -m paper.analyses.sensitivity rate
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gar import RecordError, RunConfig
from gar.analysis import COLORS, MUTED, PAGE_WIDTH, paper_figure
from gar.comparison import RunResult
from gar.records import leaves
from paper.analyses.ablation import seed_scores
from paper.analyses.intervals import mean_interval
from paper.analyses.outputs import COLUMN_WIDTH, MARKERS, Output, add_caption, present
from paper.comparisons.results import finished_runs

_MAX_COLUMNS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingCurve:
    """One setting on one evaluation set.

    Attributes:
        setting: Its dotted name.
        set_name: Evaluation set.
        values: In ascending order.
        labels: The row of each value.
        scores: pass@k of each seed, by value.
    """

    setting: str
    set_name: str
    values: Sequence[float]
    labels: Sequence[str]
    scores: Sequence[NDArray[np.float64]]

    @property
    def percent_below_peak(self) -> list[float]:
        """Mean of each value, in percent below the best mean."""
        means = np.array([scores.mean() for scores in self.scores])
        return (100 * (means / (means.max() or np.nan) - 1)).tolist()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """The curves of all settings that rows of a comparison vary one at a time, around its base row."""

    name: str
    base: str
    k: int
    curves: Sequence[SettingCurve]
    notes: Sequence[str]


def sensitivity(folder: str | Path, *, base: str | None = None) -> Sensitivity:
    """Curves over every number that rows vary one at a time.

    Args:
        folder: A comparison of paper/, or the YAML file of one that `gar compare` has run.
        base: The row that the others vary. None: the one that differs least from all others.

    Raises:
        RecordError: There is nothing to read, no such row, or no row that varies only one number.
    """
    runs = finished_runs(folder)
    notes: list[str] = []
    # Settings that a result lacks came later, with defaults that change nothing.
    defaults = dict(leaves(RunConfig().model_dump(mode="json")))
    settings = {run.label: defaults | dict(leaves(run.settings)) for run in runs}
    for values in settings.values():
        values.pop("seed", None)
    chosen = base or _center(settings)
    if chosen not in settings:
        raise RecordError(f"{folder}: no row '{chosen}'; there are {', '.join(settings)}.")
    varied: dict[str, dict[str, float]] = {}
    for label, values in settings.items():
        changed = [name for name in values.keys() | settings[chosen].keys()
                   if values.get(name) != settings[chosen].get(name)]  # fmt: skip
        numbers = [values.get(changed[0]), settings[chosen].get(changed[0])] if len(changed) == 1 else []
        if numbers and all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers):
            varied.setdefault(changed[0], {chosen: settings[chosen][changed[0]]})[label] = values[changed[0]]
        elif label != chosen:
            notes.append(f"{label} is in no curve: it changes {', '.join(sorted(changed)[:3])}.")
    if not varied:
        raise RecordError(f"{folder}: no row differs from '{chosen}' in only one number. Try paper.analyses.ablation.")
    k = min(k for run in runs for part in run.sets.values() for k in part.known_rates)
    sets = list(dict.fromkeys(name for run in runs for name in run.sets))
    curves = [_curve(runs, setting, rows, name, k) for setting, rows in sorted(varied.items()) for name in sets]
    notes.append("The peak is chosen by the same numbers; with few seeds a curve shows chance as well as the setting.")
    return Sensitivity(name=Path(folder).stem, base=chosen, k=k, curves=curves, notes=notes)


def _curve(runs: Sequence[RunResult], setting: str, rows: Mapping[str, float], set_name: str, k: int) -> SettingCurve:
    order = sorted(rows, key=lambda label: rows[label])
    scores = [np.array(list(seed_scores(runs, label, set_name, k).values())) for label in order]
    known = [i for i, values in enumerate(scores) if len(values)]
    return SettingCurve(
        setting=setting,
        set_name=set_name,
        values=[rows[order[i]] for i in known],
        labels=[order[i] for i in known],
        scores=[scores[i] for i in known],
    )


def _center(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """The row with the fewest differences from all others. Among equals, a row named after its method wins."""

    def distance(label: str) -> tuple[int, bool]:
        row = settings[label]
        differences = sum(
            row.get(name) != other.get(name) for other in settings.values() for name in row.keys() | other.keys()
        )
        return differences, label != row.get("method")

    return min(settings, key=distance)


def sensitivity_figure(sensitivity: Sensitivity) -> Figure:
    """A panel for each setting, a line for each set."""
    names = list(dict.fromkeys(curve.setting for curve in sensitivity.curves))
    columns = min(_MAX_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    with paper_figure(0.5 + 1.8 * rows, PAGE_WIDTH if columns > 1 else COLUMN_WIDTH) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).flat
        for axes, name in zip(panels, names, strict=False):
            _draw_setting(axes, [curve for curve in sensitivity.curves if curve.setting == name])
            axes.set_xlabel(name)
        for axes in list(figure.axes)[len(names) :]:
            axes.set_visible(False)
        figure.axes[0].legend(loc="lower center", frameon=False)
        counts = sorted({len(scores) for curve in sensitivity.curves for scores in curve.scores})
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        add_caption(
            figure,
            f"{sensitivity.name}, around {sensitivity.base}: pass@{sensitivity.k}, n = {seeds} seeds a point."
            + (" " if columns > 1 else "\n")
            + "Bars: 95% intervals over seeds.",
        )
    return figure


def _draw_setting(axes: Axes, curves: Sequence[SettingCurve]) -> None:
    for i, curve in enumerate(curves):
        x = np.arange(len(curve.values)) + (i - (len(curves) - 1) / 2) * 0.1
        peak = max(scores.mean() for scores in curve.scores) or np.nan
        for place, scores in zip(x, curve.scores, strict=True):
            mean = mean_interval(scores)
            if np.isfinite(mean.low):
                low, high = max(mean.low, 0.0), min(mean.high, 1.0)
                axes.plot([place] * 2, [100 * (end / peak - 1) for end in (low, high)], color=COLORS[i], linewidth=1)
        axes.plot(x, curve.percent_below_peak, color=COLORS[i], marker=MARKERS[i], markersize=4, label=curve.set_name)
    axes.axhline(0, color=MUTED, linewidth=0.7)
    axes.set_xticks(range(len(curves[0].values)), [f"{value:g}" for value in curves[0].values])
    axes.set_ylabel("below the peak, %")


def sensitivity_output(sensitivity: Sensitivity) -> Output:
    """The table, data and figure of the study."""
    points = [
        (curve, value, label, scores, below)
        for curve in sensitivity.curves
        for value, label, scores, below in zip(
            curve.values, curve.labels, curve.scores, curve.percent_below_peak, strict=True
        )
    ]
    return Output(
        name="sensitivity",
        title=f"{sensitivity.name}, around {sensitivity.base}: pass@{sensitivity.k}",
        headings=("setting", "value", "set", "seeds", "mean", "below the peak, %"),
        rows=[
            (curve.setting, f"{value:g}", curve.set_name, len(scores), float(scores.mean()), f"{below:+.1f}")
            for curve, value, _, scores, below in points
        ],
        data=pa.table(
            {
                "setting": [curve.setting for curve, *_ in points],
                "set_name": [curve.set_name for curve, *_ in points],
                "value": [float(value) for _, value, *_ in points],
                "label": [label for _, _, label, *_ in points],
                "scores": [scores.tolist() for *_, scores, _ in points],
                "percent_below_peak": [below for *_, below in points],
            }
        ),
        figure=sensitivity_figure(sensitivity),
        notes=sensitivity.notes,
    )


def main() -> None:
    """Write data and figure beside the results, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="a comparison of paper/, or the YAML file of one that gar compare has run")
    parser.add_argument("--base", metavar="ROW", help="the row that others vary (default: the usual settings)")
    parser.add_argument(
        "--out", metavar="FOLDER", help="where the files go (default: results/NAME/analysis/sensitivity)"
    )
    options = parser.parse_args()
    folder = f"results/{Path(options.results).stem}"
    output = sensitivity_output(sensitivity(options.results, base=options.base))
    present(output, options.out or f"{folder}/analysis/sensitivity")


if __name__ == "__main__":
    main()
