"""Charts over the training steps, one line per group with a band: the metrics, and the spread of the alignment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gar.analysis.panels import COLORS, Panel, logged, window_size
from gar.metrics import (
    ADVANTAGE,
    ALIGNMENT,
    BONUS,
    ELIGIBLE,
    EVALUATION,
    REWARD,
    ZERO_STD_OUTCOME,
    ZERO_STD_SHAPED,
    seconds_of,
)
from gar.report.page import Chart, Series, rounded
from gar.report.runs import Groups

_MOST_POINTS = 1000
"""Points of a line. Fewer if there are more than eight groups."""
_MOST_WINDOWS = 40
"""Points of the spread, each of the responses of some steps."""
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)

_PANELS = (
    Panel(REWARD, "Reward", "mean over responses"),
    Panel(ELIGIBLE, "Right", "share of responses, right and in format", 0),
    Panel(ALIGNMENT, "Alignment", "of right responses, cosine with the expert solution"),
    Panel(
        ZERO_STD_SHAPED,
        "Zero-std groups",
        "share of groups, dashed by outcome only",
        0,
        ZERO_STD_OUTCOME,
    ),
    Panel(BONUS, "Bonus", "mean over scored responses, or over all", 0),
    Panel(ADVANTAGE, "Advantage", "mean size", 0),
    Panel("completions/mean_length", "Tokens", "of a response", 0),
    Panel("entropy", "Entropy", "nats per token", 0),
    Panel("grad_norm", "Gradient norm", "before clipping", 0),
    Panel(seconds_of("step"), "Seconds per step", "wall time", 0),
)


def charts(groups: Groups) -> list[Chart]:
    """A chart for each metric that any run has logged, including evaluations during training."""
    metrics = {name for runs in groups.values() for run in runs for row in run.metrics for name in row}
    evaluations = [
        Panel(name, name.removeprefix(EVALUATION).replace("/", ", "), "share of problems")
        for name in sorted(metrics)
        if name.startswith(EVALUATION)
    ]
    shown = [panel for panel in (*_PANELS, *evaluations) if panel.metric in metrics]
    drawn = list[Chart]()
    for panel in shown:
        drawn.append(_chart(groups, panel))
        if panel.metric == ALIGNMENT:
            drawn.append(_alignment_spread(groups))
    return [chart for chart in drawn if chart.series]


def _chart(groups: Groups, panel: Panel) -> Chart:
    longest = max(len(run.metrics) for runs in groups.values() for run in runs)
    window = 1 if panel.metric.startswith(EVALUATION) else window_size(longest)
    num_points = min(_MOST_POINTS, 8 * _MOST_POINTS // len(groups))
    series = []
    for number, (label, runs) in enumerate(groups.items()):
        for metric in filter(None, (panel.reference, panel.metric)):
            lines = [line for run in runs if (line := logged(run, metric)).notna().any()]
            if not len(table := _band(lines, window)):
                continue
            table = table.iloc[np.linspace(0, len(table) - 1, min(len(table), num_points)).round().astype(int)]
            dashed = metric == panel.reference
            series.append(
                Series(
                    label=label if len(runs) == 1 else f"{label}, {len(lines)} seeds",
                    color=COLORS[number % len(COLORS)],
                    dashed=dashed,
                    steps=table.index.tolist(),
                    values=_all_rounded(table["mean"]),
                    bands=[] if dashed else [(_all_rounded(table["min"]), _all_rounded(table["max"]))],
                )
            )
    return Chart(title=panel.title, unit=panel.unit, from_zero=panel.smallest == 0, series=series)


def _band(lines: Sequence[Any], window: int) -> Any:
    """Mean, smallest and largest value by step: of the window in one run, else of the running means of the seeds."""
    rolling = [line.rolling(window, center=True, min_periods=1) for line in lines]
    if len(rolling) == 1:
        return rolling[0].agg(["mean", "min", "max"])
    if not rolling:
        return pd.DataFrame()
    means = pd.concat([each.mean() for each in rolling], axis=1, join="inner").sort_index()
    table = pd.DataFrame({"mean": means.mean(axis=1), "min": means.min(axis=1), "max": means.max(axis=1)})
    return table.mask(means.isna().any(axis=1))


def _all_rounded(values: Any) -> list[float | None]:
    return [rounded(float(value)) for value in values]


def _alignment_spread(groups: Groups) -> Chart:
    """Median and two bands of the recorded alignments of right responses, of the first run of each group."""
    series = []
    for number, (label, (run, *_)) in enumerate(groups.items()):
        table: Any = run.rollouts(["step", "eligible", "alignment"]).to_pandas() if run.num_rows else pd.DataFrame()
        if not len(table) or not (right := table["eligible"] & table["alignment"].notna()).any():
            continue
        # Windows of steps, since the quantiles of a single step are of few responses.
        windows = np.array_split([*run.num_rows], min(len(run.num_rows), _MOST_WINDOWS))
        last = np.array([window[-1] for window in windows])
        scored = table[right]["alignment"].groupby(last[np.searchsorted(last, table[right]["step"])])
        low, quarter, median, three, high = (_all_rounded(scored.quantile(share).reindex(last)) for share in _QUANTILES)
        series.append(
            Series(
                label=label,
                color=COLORS[number % len(COLORS)],
                dashed=False,
                steps=last.tolist(),
                values=median,
                bands=[(low, high), (quarter, three)],  # at two ends, the second fills the first
            )
        )
    unit = "of right responses: median, central half, 80%"
    return Chart(title="Alignment spread", unit=unit, from_zero=False, series=series)
