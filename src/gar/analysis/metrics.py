"""The metrics of a run over its steps."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from gar.records import Run


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
