"""From the metrics of a run: seconds of its optimizer steps, whole and by part, and short curves."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

_MAX_POINTS = 60
_DIGITS = 5


def step_times(metrics: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of an optimizer step and of its parts, and each part's share: medians over generations.

    With several updates per generation only the first one generates: a median over steps would describe neither kind,
    so a generation counts as one, the mean of its steps. The first one warms up and is left out if there are others.

    Returns:
        Seconds by part, "step" the whole. Shares by part.
    """
    generations: list[list[Mapping[str, Any]]] = []
    for row in metrics:
        if row.get("time/step_seconds") is None:
            continue
        if row.get("time/generation_seconds") or not generations:
            generations.append([])
        generations[-1].append(row)
    warm = generations[1:] or generations
    names = {name for rows in warm for row in rows for name in row}
    parts = {
        name[5:-8]: [statistics.fmean(row.get(name) or 0.0 for row in rows) for rows in warm]
        for name in sorted(names)
        if name.startswith("time/") and name.endswith("_seconds")
    }
    seconds = {part: round(statistics.median(values), _DIGITS) for part, values in parts.items()}
    shares = {
        part: round(statistics.median(a / b for a, b in zip(values, parts["step"], strict=True)), _DIGITS)
        for part, values in parts.items()
        if part != "step"
    }
    return seconds, shares


def thinned(
    metrics: Sequence[Mapping[str, Any]], name: str, max_points: int = _MAX_POINTS
) -> dict[str, list[float | None]]:
    """A metric over steps, averaged over neighbors if it was logged more than `max_points` times.

    The steps depend on when the metric was logged, not on its values, so they are the same for all seeds. A value is
    None if there was nothing to average. Empty if the metric was never logged.
    """
    rows = [(row["step"], row[name]) for row in metrics if name in row]
    if not rows:
        return {}
    size = -(-len(rows) // max_points)
    bins = [rows[i : i + size] for i in range(0, len(rows), size)]
    values = [[value for _, value in pairs if value is not None] for pairs in bins]
    return {
        "step": [statistics.fmean(step for step, _ in pairs) for pairs in bins],
        "value": [round(statistics.fmean(known), _DIGITS) if known else None for known in values],
    }
