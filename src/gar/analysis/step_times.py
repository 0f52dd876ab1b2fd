"""Seconds of a run's optimizer steps, whole and by part, from its metrics."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def generation_times(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Seconds of each generation's optimizer steps, "step" and every recorded part, averaged over its updates.

    With several updates per generation only the first one generates: a median over steps would describe neither kind,
    so a generation counts as one. The first generation warms up and is left out where there are others.
    """
    generations: list[list[Mapping[str, Any]]] = []
    for row in metrics:
        if row.get("time/step_seconds") is None:
            continue
        if row.get("time/generation_seconds") or not generations:
            generations.append([])
        generations[-1].append(row)
    warm = generations[1:] or generations
    names = sorted({name for rows in warm for row in rows for name in row if _is_time(name)})
    return [{_part(name): statistics.fmean(row.get(name) or 0.0 for row in rows) for name in names} for rows in warm]


def _is_time(name: str) -> bool:
    return name.startswith("time/") and name.endswith("_seconds")


def _part(name: str) -> str:
    return name.removeprefix("time/").removesuffix("_seconds")
