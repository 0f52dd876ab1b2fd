"""Means with their intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanInterval:
    """A mean and the ends of its 95% interval. The mean of no value is NaN, and so are the ends of fewer than two."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return "-"
        return f"{self.mean:.3f}" + (f" [{self.low:.3f}, {self.high:.3f}]" if np.isfinite(self.low) else "")


def mean_interval(values: ArrayLike) -> MeanInterval:
    """The mean of the finite values with its 95% interval by Student's t."""
    numbers = np.asarray(values, dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    count, mean = len(numbers), float(numbers.mean()) if len(numbers) else np.nan
    half = float(stats.t.ppf(0.975, count - 1) * stats.sem(numbers)) if count > 1 else np.nan
    return MeanInterval(mean=mean, low=mean - half, high=mean + half)
