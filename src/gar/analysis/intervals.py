"""Means with intervals. Values may come in clusters: responses to one problem are not independent."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusteredMean:
    """A mean and its 95% interval.

    Attributes:
        mean: Mean of all values. NaN if there is none.
        low: Lower end of the interval. NaN with fewer than two clusters.
        high: Upper end.
        num_values: How many values.
        num_clusters: How many clusters: problems, or groups.
    """

    mean: float
    low: float
    high: float
    num_values: int
    num_clusters: int

    def __str__(self) -> str:
        if not self.num_values:
            return "-"
        interval = f" [{self.low:.3f}, {self.high:.3f}]" if np.isfinite(self.low) else ""
        return f"{self.mean:.3f}{interval}"


def clustered_mean(values: ArrayLike, clusters: ArrayLike | None = None) -> ClusteredMean:
    """Mean over all values, with its 95% interval over clusters by Student's t.

    `standard error^2 = G / (G - 1) * sum over clusters of (sum of deviations in it)^2 / N^2` with G clusters and N
    values. With one value in each cluster it is the usual interval of a mean.

    Args:
        values: Numbers. Those that are not finite are left out.
        clusters: The cluster of each value. None if values are independent.

    References:
        Liang and Zeger 1986, for the mean. https://doi.org/10.1093/biomet/73.1.13
    """
    numbers = np.asarray(values, dtype=np.float64)
    known = np.isfinite(numbers)
    numbers = numbers[known]
    if not len(numbers):
        return ClusteredMean(mean=np.nan, low=np.nan, high=np.nan, num_values=0, num_clusters=0)
    labels = np.arange(len(numbers)) if clusters is None else np.asarray(clusters)[known]
    _, index = np.unique(labels, return_inverse=True)
    count = int(index.max()) + 1
    mean = float(numbers.mean())
    half = np.nan
    if count > 1:
        sums = np.bincount(index, weights=numbers - mean)
        error = np.sqrt(count / (count - 1) * np.square(sums).sum()) / len(numbers)
        half = float(stats.t.ppf(0.975, count - 1) * error)
    return ClusteredMean(mean=mean, low=mean - half, high=mean + half, num_values=len(numbers), num_clusters=count)
