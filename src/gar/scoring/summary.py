"""Summary of a file of scores, counted group by group."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gar.scoring.io import OutputRow
from gar.scoring.scores import SignalStatus
from gar.types import Status

_FLAGS = ("verified", "well_formatted", "eligible")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class ScoreTally:
    """Counts output rows. Keeps one number per scored response in memory."""

    def __init__(self, *, correct_reward: float) -> None:
        self._correct_reward = correct_reward
        self._sums: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._signals: Counter[str] = Counter()
        self._alignment = {True: array("d"), False: array("d")}  # by whether it is verified

    def counting(self, groups: Iterable[Sequence[OutputRow]]) -> Iterator[Sequence[OutputRow]]:
        """Pass the responses to each problem through and count them."""
        for rows in groups:
            self._add(rows)
            yield rows

    def _add(self, rows: Sequence[OutputRow]) -> None:
        outcomes = [self._correct_reward * row["eligible"] + row["penalty"] for row in rows]
        zero_std = {"before": len(set(outcomes)) == 1, "after": len({row["advantage"] for row in rows}) == 1}
        self._sums.update(zero_std | {"groups": 1, "responses": len(rows), "outcome": sum(outcomes)})
        self._sums.update({name: sum(row[name] for row in rows) for name in (*_FLAGS, "reward", "num_tokens")})
        self._statuses.update(row["status"] for row in rows)
        self._signals.update(row["signal"] for row in rows)
        for row in rows:
            if row["alignment"] is not None:
                self._alignment[row["verified"]].append(row["alignment"])

    def summary(self) -> dict[str, Any]:
        """Counts, means and quantiles as plain values, None if they are undefined.

        Alignment is given for all scored responses, for the verified ones, and for the others. `outcome_mean` and the
        zero-std groups `before` count the outcome alone, without bonuses.
        """
        sums, verified, others = self._sums, np.array(self._alignment[True]), np.array(self._alignment[False])
        scored = {"scored": np.concatenate([verified, others]), "verified": verified, "others": others}
        return {
            **{name: sums[name] for name in ("groups", "responses", *_FLAGS)},
            "tokens": sums["num_tokens"],
            "verification": {name: self._statuses[name] for name in Status if self._statuses[name]},
            "signal": {name: self._signals[name] for name in SignalStatus if self._signals[name]},
            "alignment": {name: _distribution(values) for name, values in scored.items()},
            **{f"{name}_mean": sums[name] / sums["responses"] for name in ("outcome", "reward")},
            "zero_std_group_fraction": {name: sums[name] / sums["groups"] for name in ("before", "after")},
        }


def _distribution(values: "np.ndarray[Any, np.dtype[np.float64]]") -> dict[str, Any]:
    quantiles = np.quantile(values, QUANTILES).tolist() if len(values) else [None] * len(QUANTILES)
    return {
        "count": len(values),
        "mean": float(values.mean()) if len(values) else None,
        "quantiles": {f"{quantile:g}": value for quantile, value in zip(QUANTILES, quantiles, strict=True)},
    }
