"""From drawn rows to what the rollout browser shows, within a number of bytes."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gar.report.content import Rollouts, ShownGroup, ShownResponse
from gar.report.experts import Experts
from gar.report.sample import SEED, DrawnGroup, verdict_word
from gar.report.shares import Shares
from gar.report.texts import Formulas, readable_prompt, shown_text

NUMBERS = (
    "alignment", "bonus", "penalty", "reward", "advantage", "num_tokens", "num_scored_tokens", "signal_norm",
)  # fmt: skip
"""Columns of a rollout that the page shows as numbers."""

MAX_TEXT_CHARACTERS = 120_000
_DIGITS = 5


def fitting_groups(groups: Sequence[DrawnGroup], max_bytes: int, *, with_shares: bool) -> list[DrawnGroup]:
    """As many of the groups, in random order, as fit into so many bytes; then in their own order again."""
    order = list(range(len(groups)))
    random.Random(SEED).shuffle(order)
    kept, used = [], 0
    for i in order:
        used += _size(groups[i], with_shares=with_shares)
        if used > max_bytes:
            break
        kept.append(i)
    return [groups[i] for i in sorted(kept)]


def browse(groups: Sequence[DrawnGroup], experts: Experts, shares: Shares, notes: Sequence[str]) -> Rollouts:
    """The browser's content. Texts longer than `MAX_TEXT_CHARACTERS` are cut, and say so."""
    formulas = Formulas()
    shown = [_shown(group, experts, shares, formulas) for group in groups]
    return Rollouts(groups=shown, formulas=formulas.rows, notes=notes)


def _shown(group: DrawnGroup, experts: Experts, shares: Shares, formulas: Formulas) -> ShownGroup:
    first = group.first
    problem = experts.get((group.run, str(first["problem_id"])))
    anchors = "\n\n".join(anchor.text for anchor in problem.anchors) if problem else ""

    def text(value: str) -> Any:
        return shown_text(value, formulas, max_characters=MAX_TEXT_CHARACTERS)

    return ShownGroup(
        run=group.run,
        step=group.step,
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
                shares=shares.get((group.run, group.step, row["group_index"], row["response_index"])),
            )
            for row in group.rows
        ],
    )


def _number(value: float | None) -> float | None:
    """Rounded; None also for what is not finite, which JSON has no word for."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else round(value, _DIGITS)


def _size(group: DrawnGroup, *, with_shares: bool) -> int:
    """Bytes of a group in the page, on the safe side: formulas and an expert solution as long as a response."""
    shown = asdict(_shown(group, {}, {}, formulas := Formulas()))
    texts = len(json.dumps([shown, formulas.rows], ensure_ascii=False).encode("utf-8", "replace"))
    longest = max(len((row["response"] or "").encode()) for row in group.rows)
    tokens = sum(row["num_tokens"] or len(row["response"] or "") for row in group.rows) if with_shares else 0
    return texts + min(longest, MAX_TEXT_CHARACTERS) + 24 * tokens
