"""Summary of a file of scores, counted group by group."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from gar.scoring.output import OutputRow
from gar.scoring.scores import SignalStatus
from gar.types import Status

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

GIVEN = "given"
"""Status of a response whose correctness is given in the input row."""


class ScoreTally:
    """Counts output rows. Keeps one number per scored response in memory.

    Args:
        correct_reward: Reward of an eligible response, `RewardSettings.base`.
    """

    def __init__(self, *, correct_reward: float) -> None:
        self._correct_reward = correct_reward
        self._counts: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._signals: Counter[str] = Counter()
        self._outcome_sum = 0.0
        self._reward_sum = 0.0
        self._alignment = {True: array("d"), False: array("d")}  # by whether it is verified

    def counting(self, groups: Iterable[Sequence[OutputRow]]) -> Iterator[Sequence[OutputRow]]:
        """Pass the groups through and count them."""
        for rows in groups:
            self.add(rows)
            yield rows

    def add(self, rows: Sequence[OutputRow]) -> None:
        """Count the responses to one problem."""
        outcomes = [self._correct_reward * row["eligible"] + row["penalty"] for row in rows]
        self._outcome_sum += sum(outcomes)
        self._reward_sum += sum(row["reward"] for row in rows)
        self._counts["groups"] += 1
        self._counts["responses"] += len(rows)
        self._counts["zero_std_before"] += len(set(outcomes)) == 1
        self._counts["zero_std_after"] += len({row["advantage"] for row in rows}) == 1
        for row in rows:
            self._counts["verified"] += row["verified"]
            self._counts["well_formatted"] += row["well_formatted"]
            self._counts["eligible"] += row["eligible"]
            self._counts["tokens"] += row["num_tokens"]
            self._statuses[row["status"] or GIVEN] += 1
            self._signals[row["signal"]] += 1
            if row["alignment"] is not None:
                self._alignment[row["verified"]].append(row["alignment"])

    def summary(self) -> dict[str, Any]:
        """Counts, means and quantiles as plain values, None where they are undefined.

        Alignment is given for all scored responses, for the verified ones, and for the others. `outcome_mean` and the
        zero-std groups `before` are those of the outcome, without bonuses.
        """
        counts = self._counts
        verified, others = (np.frombuffer(self._alignment[side]) for side in (True, False))
        return {
            "groups": counts["groups"],
            "responses": counts["responses"],
            "tokens": counts["tokens"],
            "verification": {name: self._statuses[name] for name in (*Status, GIVEN) if self._statuses[name]},
            "verified": counts["verified"],
            "well_formatted": counts["well_formatted"],
            "eligible": counts["eligible"],
            "signal": {name: self._signals[name] for name in SignalStatus if self._signals[name]},
            "alignment": {
                "scored": _distribution(np.concatenate([verified, others])),
                "verified": _distribution(verified),
                "others": _distribution(others),
            },
            "outcome_mean": _share(self._outcome_sum, counts["responses"]),
            "reward_mean": _share(self._reward_sum, counts["responses"]),
            "zero_std_group_fraction": {
                "before": _share(counts["zero_std_before"], counts["groups"]),
                "after": _share(counts["zero_std_after"], counts["groups"]),
            },
        }


def _distribution(values: "np.ndarray[Any, np.dtype[np.float64]]") -> dict[str, Any]:
    quantiles = np.quantile(values, QUANTILES).tolist() if len(values) else [None] * len(QUANTILES)
    return {
        "count": len(values),
        "mean": float(values.mean()) if len(values) else None,
        "quantiles": {f"{quantile:g}": value for quantile, value in zip(QUANTILES, quantiles, strict=True)},
    }


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
