"""The learning curve shows what was recorded, says what was not, and gives the same files for the same run."""

import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gar.analysis.curves import curves_figure, learning_curve_figure
from gar.analysis.style import paper_figure, save_figure
from gar.errors import RecordError
from gar.records import open_run
from tests.report.runs import make_run
from tests.support.errors import raises
from tests.support.processes import completed

RIGHT, ALIGNMENT, ZERO_STD, RATES = range(4)


def words(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_figure_draws_the_recorded_numbers_of_a_run(tmp_path):
    run = make_run(tmp_path, "cost$x$_{1}", steps=40, rollouts={})
    axes = learning_curve_figure(open_run(run)).axes
    reward, right = axes[RIGHT].lines
    np.testing.assert_array_equal(right.get_xdata(), np.arange(1, 41))
    assert (right.get_ydata()[20], reward.get_ydata()[20]) == pytest.approx((0.21, 0.42))  # 5 steps of a straight line
    assert right.get_ydata()[0] == pytest.approx(0.02)  # the mean of three steps
    assert axes[RIGHT].get_title(loc="left") == "Correct responses in the right format (dashed: reward)"
    assert axes[RIGHT].get_xlabel() == "training step (mean over 5 points)"
    outcome, shaped = axes[ZERO_STD].lines
    assert ({*outcome.get_ydata()}, {*shaped.get_ydata()}) == ({0.5}, {0.25})
    assert [label.get_text() for label in axes[RATES].get_yticklabels()] == ["before", "after"]
    assert {float(line.get_xdata()[0]) for line in axes[RATES].lines if line.get_marker() == "o"} == {0.3125, 0.75}
    assert words(axes[RATES]) == ["test pass@1"]


def test_figure_of_seeds_shows_their_mean_with_its_interval_and_cuts_it_to_the_range():
    values = [0.5, 0.9], [0.7, None]
    seeds = [{"gar/eligible_fraction": pd.Series(each, [1, 2], dtype=float)} for each in values]
    figure = curves_figure({"a": seeds, "b": seeds}, {"a": {"test": [0.1, 0.3]}, "b": {}}, title="pass@1")
    line, _ = figure.axes[RIGHT].lines
    np.testing.assert_allclose(line.get_ydata(), [0.6, 0.9])
    band = np.concatenate([path.vertices for path in figure.axes[RIGHT].collections[0].get_paths()])
    # Student's t with one degree of freedom is wider than the range.
    assert (np.nanmin(band[:, 1]), np.nanmax(band[:, 1])) == (0, 1)
    assert figure.get_supxlabel() == "Mean over seeds with its 95% interval. Dots are seeds."


def test_figure_says_not_recorded_where_a_metric_is_null_throughout_or_missing(tmp_path):
    run = open_run(make_run(tmp_path, rollouts={}))
    run.metrics = [{**row, "gar/alignment_mean": None} for row in run.metrics]
    axes = learning_curve_figure(run).axes
    assert [words(panel) == ["not recorded"] for panel in axes] == [False, True, False, False]
    empty = curves_figure({"run": [{}]}, {}, title="pass@1")
    assert all(words(panel) == ["not recorded"] for panel in empty.axes)


def test_equal_figures_are_equal_files(tmp_path):
    for stem in ("first", "second"):
        with paper_figure(1) as figure:
            figure.subplots().fill_between([0, 1], [0, 1], hatch="//")  # an SVG names its patterns
            paths = save_figure(figure, tmp_path / stem)
    assert [path.name for path in paths] == ["second.png", "second.svg"]
    assert all(path.read_bytes() == path.with_stem("first").read_bytes() for path in paths)
    with raises(RecordError):
        save_figure(Figure(), paths[0] / "curve")


def test_figures_load_neither_pyplot_nor_torch():
    code = "import sys, gar.analysis.curves; print({'matplotlib.pyplot', 'torch'} & set(sys.modules))"
    assert completed([sys.executable, "-c", code], check=True).stdout == "set()\n"
