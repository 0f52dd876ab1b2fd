"""What figures and charts draw: the metrics of a run over its steps, and the colors of all."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from gar.records import Run

# Okabe and Ito: told apart with any color vision. Neighbors differ in lightness: a figure survives a gray printer.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
INK = "#333333"
MUTED = "#6E6E6E"


class Panel(NamedTuple):
    """A metric to draw, and its smallest possible value. The reference, if any, is dashed."""

    metric: str
    title: str
    unit: str
    smallest: float = -np.inf
    reference: str = ""


def logged(run: Run, metric: str) -> pd.Series:
    """A metric of a run by step. NaN if it is unknown."""
    return pd.Series({row["step"]: row[metric] for row in run.metrics if metric in row}, dtype=float)


def window_size(num_steps: int) -> int:
    """Steps in the centered window of a running mean: odd, about a tenth of the run."""
    return 2 * (num_steps // 20) + 1
