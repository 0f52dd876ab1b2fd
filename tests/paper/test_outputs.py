"""Means with intervals, and captions of figures."""

import io

import numpy as np
import pytest
from scipy import stats

from gar.analysis import paper_figure
from paper.analyses.intervals import mean_interval
from paper.analyses.outputs import add_caption

pytestmark = pytest.mark.paper


def test_mean_interval_is_students():
    values = [0.1, 0.4, 0.35, 0.8]
    found = mean_interval([*values, np.nan])
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose((found.low, found.high), expected)
    assert [str(mean_interval(few)) for few in ([np.nan], [0.6])] == ["-", "0.600"]


def test_a_caption_stays_inside_the_figure():
    name = "gar-grpo-" + "arithmetic" * 8  # a run may have a name of any length, without a space to break at
    with paper_figure(3, width=3.35) as figure:
        add_caption(figure, f"{name}, problem train-1234: n = 64 (64 fresh responses).\nA second line.")
    figure.savefig(io.BytesIO())  # lays the figure out
    box, page = figure._supxlabel.get_window_extent(), figure.bbox  # pyright: ignore
    assert page.x0 <= box.x0 <= box.x1 <= page.x1
    assert page.y0 <= box.y0
