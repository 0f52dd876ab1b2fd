"""Histograms of the alignment as images. Matplotlib would take longer than the rest of a report."""

import base64
from collections.abc import Sequence

import numpy as np

from gar.analysis.colors import COLORS, INK, MUTED
from gar.records import Run
from gar.report.runs import Groups

_BINS = 25
_NUM_WINDOWS = 4
_WINDOW_FRACTION = 0.1
_WIDTH, _HEIGHT = 660, 190
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 46, 8, 24, 40, 16
"""Margins of the picture, and between its panels."""
_HEADROOM = 1.3
"""Above the highest bar there is room for two lines of text."""


def pictures(groups: Groups, steps: Sequence[int] = ()) -> list[tuple[str, str]]:
    """Histograms of the alignment from `steps` on, of the first run of each group: titles, and images as data URIs.

    An SVG inside an image cannot run scripts or load anything.
    """
    shown = []
    for run in (runs[0] for runs in groups.values() if runs[0].num_rows):
        if image := alignment_svg(run, steps):
            encoded = base64.b64encode(image.encode()).decode("ascii")
            shown.append((f"Alignment of correct responses, {run.name}", f"data:image/svg+xml;base64,{encoded}"))
    return shown


def alignment_svg(run: Run, at_steps: Sequence[int] = ()) -> str:
    """Histograms of the recorded alignments as SVG. "" if there is no alignment.

    Each histogram is of a tenth of the run from one of `at_steps` on. By default there are four, spread evenly.
    """
    table = run.rollouts(["step", "eligible", "alignment"])
    steps, eligible, alignments = (column.to_numpy() for column in table.columns)
    scored = eligible & ~np.isnan(alignments)
    if not scored.any():
        return ""
    steps, alignments = steps[scored], alignments[scored]
    windows = _windows([*run.num_rows], at_steps)
    parts = [alignments[(first <= steps) & (steps <= last)] for first, last in windows]
    edges = np.histogram_bin_edges(alignments, _BINS)
    shares = [np.histogram(part, edges)[0] / max(1, len(part)) for part in parts]
    highest = _HEADROOM * np.max(shares)
    width = (_WIDTH - _LEFT - _RIGHT - _GAP * (len(windows) - 1)) / len(windows)
    drawn = [_text(12, _HEIGHT / 2, "share of responses", f'transform="rotate(-90 12 {_HEIGHT / 2})"')]
    for number, (first, last) in enumerate(windows):
        panel = _Panel(_LEFT + number * (width + _GAP), width, edges, highest)
        title = f"step {first}" if first == last else f"steps {first} to {last}"
        drawn += panel.drawn(title, parts[number], shares[number], named=number == 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="9" text-anchor="middle" '
        f'font-family="DejaVu Sans, sans-serif" fill="{INK}">{"".join(drawn)}</svg>'
    )


class _Panel:
    """One histogram: where it lies in the picture, and its axes."""

    def __init__(self, left: float, width: float, edges: np.ndarray, highest: float):
        self._left, self._width, self._edges, self._highest = left, width, edges, highest

    def _x(self, value: float) -> float:
        low, high = self._edges[[0, -1]]
        return self._left + self._width * (value - low) / (high - low)

    def _y(self, share: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share / self._highest

    def drawn(self, title: str, values: np.ndarray, shares: np.ndarray, *, named: bool) -> list[str]:
        """Its parts. The shares are `named` in the first panel alone."""
        left, right, floor = self._left, self._left + self._width, self._y(0)
        parts = [_text(left, _TOP - 8, title, 'text-anchor="start" font-size="10"')]
        for share in _ticks(0, self._highest, 4):
            parts.append(_line(left, self._y(share), right, self._y(share), "#E6E6E6"))
            if named:
                parts.append(_text(left - 4, self._y(share) + 3, f"{share:g}", f'text-anchor="end" fill="{MUTED}"'))
        for low, high, share in zip(self._edges[:-1], self._edges[1:], shares, strict=True):
            if share:
                place = f'x="{self._x(low):.1f}" width="{self._x(high) - self._x(low):.1f}" y="{self._y(share):.1f}"'
                parts.append(f'<rect {place} height="{floor - self._y(share):.1f}" fill="{COLORS[5]}"/>')
        parts.append(_line(left, floor, right, floor, MUTED))
        for value in _ticks(self._edges[0], self._edges[-1], 4):
            parts.append(_text(self._x(value), floor + 12, f"{value:g}", f'fill="{MUTED}"'))
        parts.append(_text((left + right) / 2, _HEIGHT - 8, "alignment"))
        told = [f"mean {values.mean():.2f}", f"n = {len(values):,}"] if len(values) else ["none scored"]
        parts += [_text(right - 2, _TOP + 9 + 11 * i, text, 'text-anchor="end"') for i, text in enumerate(told)]
        if len(values):
            parts.append(_line(self._x(values.mean()), _TOP, self._x(values.mean()), floor, INK))
        return parts


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`: at least two, and at most about `most`."""
    unit = 10 ** np.floor(np.log10((high - low) / most))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10, 20) if (high - low) / (unit * factor) <= most)
    return [round(number * step, 10) for number in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{text}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{color}"/>'


def _windows(steps: Sequence[int], at_steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last step of each histogram."""
    size = max(1, round(len(steps) * _WINDOW_FRACTION))
    starts = np.minimum(np.searchsorted(steps, at_steps), len(steps) - 1)
    if not at_steps:
        starts = np.unique(np.linspace(0, len(steps) - size, _NUM_WINDOWS).round().astype(int))
    return [(steps[start], steps[min(start + size, len(steps)) - 1]) for start in starts]
