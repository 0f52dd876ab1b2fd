"""From drawn rows to what the rollout browser shows, within a number of bytes."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gar.report.content import ShownGroup, ShownResponse, ShownText, content_json
from gar.report.experts import Experts
from gar.report.sample import SEED, DrawnGroup, verdict_word
from gar.report.shares import Shares
from gar.report.texts import Formulas, readable_prompt, shown_text

NUMBERS = (
    "alignment", "bonus", "penalty", "reward", "advantage", "num_tokens", "num_scored_tokens", "signal_norm",
)  # fmt: skip
"""Columns of a rollout that the page shows as numbers."""

MAX_TEXT_CHARACTERS = 120_000
_SHARE_BYTES = 24
"""Of a token and its share, on the safe side."""
_DIGITS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A drawn group beside what the page shows of it."""

    drawn: DrawnGroup
    group: ShownGroup


def show_groups(
    drawn: Sequence[DrawnGroup], experts: Experts, formulas: Formulas, max_bytes: int, *, with_shares: bool
) -> list[Shown]:
    """As many of the groups, in random order, as fit into so many bytes; then in their own order again.

    Args:
        drawn: Whole groups. Texts longer than `MAX_TEXT_CHARACTERS` are cut, and say so.
        experts: Problems with their expert solutions.
        formulas: Receives the formulas of the texts.
        max_bytes: For the groups and their formulas as JSON.
        with_shares: Leave room for token shares.
    """
    order = list(range(len(drawn)))
    random.Random(SEED).shuffle(order)
    shown: dict[int, Shown] = {}
    for i in order:
        known = len(formulas.rows)
        group = _shown(drawn[i], experts, formulas)
        tokens = sum(row["num_tokens"] or len(row["response"] or "") for row in drawn[i].rows) if with_shares else 0
        max_bytes -= len(content_json([group, formulas.rows[known:]]).encode("utf-8", "replace"))
        max_bytes -= _SHARE_BYTES * tokens
        if max_bytes < 0:
            break
        shown[i] = Shown(drawn=drawn[i], group=group)
    return [shown[i] for i in sorted(shown)]


def add_shares(shown: Shown, shares: Shares) -> ShownGroup:
    """The group with the token shares of its responses, where there are any."""
    first = shown.drawn.first
    place = (shown.drawn.run, shown.drawn.step, first["group_index"])
    return replace(
        shown.group,
        responses=[replace(each, shares=shares.get((*place, each.index))) for each in shown.group.responses],
    )


def _shown(drawn: DrawnGroup, experts: Experts, formulas: Formulas) -> ShownGroup:
    first = drawn.first
    problem = experts.get((drawn.run, str(first["problem_id"])))
    anchors = "\n\n".join(anchor.text for anchor in problem.anchors) if problem else ""

    def text(value: str) -> ShownText:
        return shown_text(value, formulas, max_characters=MAX_TEXT_CHARACTERS)

    return ShownGroup(
        run=drawn.run,
        step=drawn.step,
        problem_id=str(first["problem_id"]),
        prompt=text(readable_prompt(first["prompt"] or "")),
        gold=first["gold"] if first["gold"] is not None else "",
        expert=text(anchors) if anchors else None,
        responses=[
            ShownResponse(
                index=row["response_index"],
                verdict=verdict_word(row),
                text=text(row["response"] or ""),
                answer=row["answer"],
                numbers={name: _number(row[name]) for name in NUMBERS},
                truncated=row["truncated"],
            )
            for row in drawn.rows
        ],
    )


def _number(value: float | None) -> float | None:
    """Rounded; None also for what is not finite, which JSON has no word for."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else round(value, _DIGITS)
