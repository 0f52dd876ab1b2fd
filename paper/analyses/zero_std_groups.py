"""Which groups of a run are equal in outcome, and which of them the bonus rescues.

python -m paper.analyses.zero_std_groups RUN [--out FOLDER]
"""

import argparse
from typing import Any

import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from gar import DataError
from gar.analysis import COLORS, MUTED, paper_figure
from gar.records import Run, open_run
from paper.analyses.outputs import Output, add_caption, present

_WINDOWS_OF_A_RUN = 20


def zero_std_groups(run: Run) -> pd.DataFrame:
    """Which groups of a run are equal in outcome, a row for each group. Rescued: the rewards differ by the bonus."""
    table: Any = run.rollouts(["step", "group_index", "eligible", "bonus", "reward"]).to_pandas()
    groups = table.assign(outcome=table["reward"] - table["bonus"]).groupby(["step", "group_index"])
    low, high = groups.min(), groups.max()
    equal, zero_std = high["outcome"] - low["outcome"] < 1e-9, high["reward"] - low["reward"] < 1e-12
    correct = equal & low["eligible"]
    return pd.DataFrame(
        {
            "all correct, rescued": correct & ~zero_std,
            "all correct, zero std": correct & zero_std,
            "all wrong, zero std": equal & zero_std & ~correct,
        }
    )


def zero_std_groups_figure(groups: pd.DataFrame) -> Figure:
    """Shares of the groups that are equal in outcome, over the steps."""
    shares: Any = groups.groupby("step").mean()
    window = 2 * (len(shares) // _WINDOWS_OF_A_RUN) + 1
    layers = shares.rolling(window, center=True, min_periods=1).mean()
    looks: Any = {"colors": (COLORS[0], COLORS[5], MUTED), "hatch": ("", "////", ""), "edgecolor": "white"}
    with paper_figure(2.5) as figure:
        axes = figure.subplots()
        axes.stackplot(layers.index, layers.T, labels=layers.columns, linewidth=0.5, **looks)
        axes.set(ylim=(0, 1), ylabel="share of groups", title="Groups equal in outcome")
        axes.set_xlabel("training step" + (f" (mean over {window})" if window > 1 else ""))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.margins(x=0)
        figure.legend(loc="outside upper right", ncols=3, frameon=False, handlelength=1.2)
        rescued = groups["all correct, rescued"].sum()
        add_caption(figure, f"{len(groups):,} groups, {rescued:,} of them rescued by the bonus")
    return figure


def output(run: Run) -> Output:
    """The figure, and the groups of each kind."""
    groups: Any = zero_std_groups(run)
    if groups.empty:
        raise DataError(f"{run.path}: no rollouts were recorded, so there are no groups.")
    return Output(
        name="zero-std-groups",
        title=f"{run.name}: {len(groups):,} groups",
        headings=["kind", "groups", "share"],
        rows=[[kind, int(groups[kind].sum()), f"{groups[kind].mean():.0%}"] for kind in groups],
        data=pa.Table.from_pandas(groups.reset_index(), preserve_index=False),
        figure=zero_std_groups_figure(groups),
    )


def main() -> None:
    """Run the analysis."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--out", default="analysis/zero-std-groups")
    options = parser.parse_args()
    present(output(open_run(options.run)), options.out)


if __name__ == "__main__":
    main()
