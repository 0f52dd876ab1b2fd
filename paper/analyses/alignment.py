"""A figure of the rollouts of a run: the alignment of correct responses."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from gar.analysis.colors import COLORS, INK
from gar.analysis.style import paper_figure
from gar.records import Run

_BINS = 25
_NUM_WINDOWS = 4
_WINDOW_FRACTION = 0.1


def alignment_figure(run: Run, at_steps: Sequence[int] = ()) -> Figure | None:
    """Histograms of the recorded alignments. None if there is no alignment.

    Each histogram is of a tenth of the run from one of `at_steps` on. By default there are four, spread evenly.
    """
    table = run.rollouts(["step", "eligible", "alignment"]).to_pandas()
    scored = table[table["eligible"] & table["alignment"].notna()]
    if scored.empty:
        return None
    windows = _windows([*run.num_rows], at_steps)
    with paper_figure(2.0) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(windows), sharex=True, sharey=True))
        bins = np.histogram_bin_edges(scored["alignment"], _BINS).tolist()
        for axes, (first, last) in zip(panels, windows, strict=True):
            axes.set_title(f"step {first}" if first == last else f"steps {first} to {last}")
            axes.set_xlabel("alignment")
            values = scored["alignment"][scored["step"].between(first, last)].to_numpy()
            count = len(values)
            text = f"mean {values.mean():.2f}\nn = {count:,}" if count else "none scored"
            axes.text(0.98, 0.97, text, size=6.5, ha="right", va="top", transform=axes.transAxes)
            if count:
                axes.hist(values, bins, weights=np.full(count, 1 / count), color=COLORS[5])
                axes.axvline(values.mean(), color=INK, linewidth=1.2)
            axes.grid(axis="x", visible=False)
        panels[0].set_ylabel("share of responses")
        panels[0].margins(y=0.28)
    return figure


def _windows(steps: Sequence[int], at_steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last step of each histogram."""
    size = max(1, round(len(steps) * _WINDOW_FRACTION))
    starts = np.minimum(np.searchsorted(steps, at_steps), len(steps) - 1)
    if not at_steps:
        starts = np.unique(np.linspace(0, len(steps) - size, _NUM_WINDOWS).round().astype(int))
    return [(steps[start], steps[min(start + size, len(steps)) - 1]) for start in starts]
