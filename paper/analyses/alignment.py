"""Histograms of the recorded alignment of correct responses over a run.

python -m paper.analyses.alignment RUN [--steps 1 50 91] [--out FOLDER]
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from gar import DataError
from gar.analysis import COLORS, INK, paper_figure
from gar.records import Run, open_run
from paper.analyses.outputs import Output, present

_BINS = 25
_NUM_WINDOWS = 4
_WINDOW_FRACTION = 0.1


def scored_responses(run: Run) -> Any:
    """Step and alignment of every correct response that was scored."""
    table: Any = run.rollouts(["step", "eligible", "alignment"]).to_pandas()
    return table[table["eligible"] & table["alignment"].notna()]


def alignment_figure(scored: Any, windows: Sequence[tuple[int, int]]) -> Figure:
    """A histogram for each window, from its first to its last step."""
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


def windows(steps: Sequence[int], at_steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last step of each histogram: a tenth of the run from each of `at_steps` on, or four spread evenly."""
    size = max(1, round(len(steps) * _WINDOW_FRACTION))
    starts = np.minimum(np.searchsorted(steps, at_steps), len(steps) - 1)
    if not at_steps:
        starts = np.unique(np.linspace(0, len(steps) - size, _NUM_WINDOWS).round().astype(int))
    return [(steps[start], steps[min(start + size, len(steps)) - 1]) for start in starts]


def output(run: Run, at_steps: Sequence[int] = ()) -> Output:
    """The figure, and the mean alignment in each of its windows."""
    scored = scored_responses(run)
    if scored.empty:
        raise DataError(f"{run.path}: no alignment was recorded, so there is nothing to draw.")
    chosen = windows([*run.num_rows], at_steps)
    values = [scored["alignment"][scored["step"].between(*window)] for window in chosen]
    return Output(
        name="alignment",
        title=f"{run.name}: {len(scored):,} correct responses with an alignment",
        headings=["steps", "responses", "mean alignment"],
        rows=[[f"{first} to {last}", len(of), of.mean()] for (first, last), of in zip(chosen, values, strict=True)],
        data=pa.Table.from_pandas(scored, preserve_index=False),
        figure=alignment_figure(scored, chosen),
    )


def main() -> None:
    """Run the analysis."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--steps", type=int, nargs="+", default=(), help="first steps of the histograms")
    parser.add_argument("--out", default="analysis/alignment")
    options = parser.parse_args()
    present(output(open_run(options.run), options.steps), options.out)


if __name__ == "__main__":
    main()
