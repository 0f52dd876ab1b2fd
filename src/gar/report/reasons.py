"""Why a response has its reward, and what the bonus of a run pays for: sentences from the recorded numbers."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gar.report.page import ShownGroup, ShownResponse
from gar.settings import RewardSettings

_SAME = 1e-4
"""Recorded bonuses differ from the formula by less: vectors are float32."""
_END = 0.9
"""Alignments beyond this, or below its negative, are at one of two ends."""


def verdict_word(row: Mapping[str, Any]) -> str:
    """How a response ended, in the words of the filter."""
    if row["eligible"]:
        return "right"
    return "right, not in format" if row["verified"] else row["status"]


def reward_reasons(rows: Sequence[Mapping[str, Any]], settings: RewardSettings | None) -> list[str]:
    """The reward of each response of a group as a sum. "" for samples of an evaluation, which have no reward."""
    return [_reason(row, rows, settings) if row.get("reward") is not None else "" for row in rows]


def _reason(row: Mapping[str, Any], group: Sequence[Mapping[str, Any]], settings: RewardSettings | None) -> str:
    base = row["reward"] - row["bonus"] - row["penalty"]
    text = f"{_short(row['reward'])} = {_short(base)} ({verdict_word(row)})"
    if row["penalty"]:
        text += f" − {_short(-row['penalty'])} (bad format)"
    return (text + _bonus_term(row, group, settings)).replace("-", "−")


def _bonus_term(row: Mapping[str, Any], group: Sequence[Mapping[str, Any]], settings: RewardSettings | None) -> str:
    """The bonus by the formula, if that gives the recorded one. Otherwise only its value, and nothing if it is 0."""
    alignments = [each["alignment"] for each in group if each["eligible"] and each["alignment"] is not None]
    if settings and settings.center and settings.clip and row["eligible"] and row["alignment"] is not None:
        mean, weight = statistics.fmean(alignments), settings.bonus_weight
        mean_text = (
            f"{f'{mean:.2f}' if mean >= 0 else f'({mean:.2f})'}, the mean of the group's {len(alignments)} right ones"
        )
        if len(alignments) == 1:
            return " + 0 (no other right response to compare with)"
        if row["alignment"] > mean and abs(weight * (row["alignment"] - mean) - row["bonus"]) < _SAME:
            return f" + {_short(weight)} × ({row['alignment']:.2f} − {mean_text})"
        if row["alignment"] <= mean and any(each["bonus"] for each in group):
            return f" + 0 ({row['alignment']:.2f} is not above {mean_text})"
    return f" + {_short(row['bonus'])} (bonus)" if row["bonus"] else ""


def _short(value: float) -> str:
    text = f"{round(value, 2) + 0.0:.2f}"  # no minus zero
    return text.rstrip("0").rstrip(".") if math.isfinite(value) else text


def bonus_sentences(groups: Sequence[ShownGroup]) -> str:
    """What the bonus paid for in the last quarter of the steps: length, copies, and alignments at two ends.

    Compares the paid right responses of the shown `groups` with the others of the same group. "" if there are none.
    """
    # Only groups in which some right responses are paid and some are not show what the bonus prefers.
    first = 0.75 * max((group.step or 0 for group in groups), default=0)
    late = [group for group in groups if (group.step or 0) > first]
    chosen = [(group, [each for each in group.responses if each.verdict == "right"]) for group in late]
    chosen = [(group, some) for group, some in chosen if len({_is_paid(each) for each in some}) == 2]
    if not chosen:
        return ""
    # Lengths are compared within groups, so that a long problem does not decide.
    pairs = [(each, group.expert) for group, some in chosen for each in some]
    paid, others = ([pair for pair in pairs if _is_paid(pair[0]) == kind] for kind in (True, False))
    longer = statistics.fmean(_mean_tokens(some, paid=True) - _mean_tokens(some, paid=False) for _, some in chosen)
    texts = [
        f"In {len(chosen):,} groups of the last quarter of the steps it paid {len(paid):,} right responses, and not "
        f"the other {len(others):,}.",
        f"The paid ones are {abs(longer):.1f} tokens {'longer' if longer >= 0 else 'shorter'} than the others of their "
        "group.",
    ]
    if any(group.expert for group, _ in chosen):
        copies = [f"{statistics.fmean(map(_is_copy, side)):.0%}" for side in (paid, others)]
        texts.append(f"{copies[0]} of them repeat the expert solution word for word, and {copies[1]} of the others.")
    # Alignments near 1 and -1 only separate two kinds of responses, such as two wordings.
    alignments = [value for each, _ in pairs if (value := each.numbers["alignment"]) is not None]
    high, low = (sum(sign * value > _END for value in alignments) / max(len(alignments), 1) for sign in (1, -1))
    if high + low >= 0.8 and min(high, low) >= 0.1:
        texts.append(
            f"{high:.0%} of the alignments are above {_END} and {low:.0%} below −{_END}. At two ends the bonus chooses "
            "between wordings, and does not grade them."
        )
    return " ".join(texts)


def _is_paid(response: ShownResponse) -> bool:
    return (response.numbers["bonus"] or 0) > 0


def _is_copy(pair: tuple[ShownResponse, str]) -> bool:
    response, expert = pair
    return response.text.split() == expert.split()


def _mean_tokens(responses: Sequence[ShownResponse], *, paid: bool) -> float:
    return statistics.fmean(each.numbers["num_tokens"] or 0 for each in responses if _is_paid(each) == paid)
