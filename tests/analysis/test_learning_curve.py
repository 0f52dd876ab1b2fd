"""The learning curve shows what was recorded, says what was not, and gives the same files for the same run."""

import json
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gar.analysis.learning_curve import learning_curve, learning_curve_figure, running_mean
from gar.errors import RecordError
from gar.records import RunFolder, open_run
from tests.files import write_jsonl

REWARD, ALIGNMENT, SILENT, PASS_RATES = range(4)


def pass_rates(**sets: Mapping[str, float | None]) -> dict[str, Any]:
    return {
        "step": 0,
        "sets": {name: {"num_samples": 4, "problems": [], "pass_at": values} for name, values in sets.items()},
    }


def make_run(parent: Path, name: str = "run", steps: int = 40, *, evaluated: bool = True) -> Path:
    """A run that has recorded everything."""
    run = RunFolder.create(parent, name)
    run.write_run(seed=0, command=["gar"], config={}, config_text="{}", data_hash=None)
    for step in range(1, steps + 1):
        run.append_metrics(
            {
                "step": step,
                "reward": step / 100 - 0.1,
                "gar/eligible_fraction": step / 100,
                "gar/alignment_mean": 0.3 + step / 1000,
                "gar/zero_std_group_fraction_outcome": 0.5,
                "gar/zero_std_group_fraction_shaped": 0.125,
            }
        )
    if not evaluated:
        return run.path
    run.write_json("evaluation/before.json", pass_rates(test={"1": 0.31, "4": 0.55}, harder={"1": 0.12}))
    run.write_json("evaluation/after.json", pass_rates(test={"1": 0.63, "4": 0.75}, harder={"1": 0.05}))
    return run.path


def panel(figure: Figure, which: int) -> Axes:
    return figure.axes[which]


def words(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_learning_curve_writes_a_png_and_an_svg(tmp_path):
    paths = learning_curve(make_run(tmp_path), tmp_path / "figures" / "curve.v1")
    assert paths == [tmp_path / "figures" / "curve.v1.png", tmp_path / "figures" / "curve.v1.svg"]
    header = paths[0].read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", header[16:]) == (1920, 1320)  # 9.6 x 6.6 inches at 200 dpi
    assert paths[1].read_text().rstrip().endswith("</svg>")


def test_learning_curve_gives_equal_files_for_equal_runs(tmp_path):
    first = learning_curve(make_run(tmp_path / "a"), tmp_path / "first")
    second = learning_curve(make_run(tmp_path / "b"), tmp_path / "second")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_figure_draws_the_recorded_numbers(tmp_path):
    figure = learning_curve_figure(make_run(tmp_path))
    raw, smooth, reward = panel(figure, REWARD).lines
    steps = np.arange(1, 41)
    np.testing.assert_array_equal(raw.get_xdata(), steps)
    np.testing.assert_array_equal(raw.get_ydata(), steps / 100)
    assert smooth.get_ydata()[20] == pytest.approx(0.21)  # 5 steps of a straight line
    assert reward.get_ydata()[20] == pytest.approx(0.11)
    outcome, _, shaped = panel(figure, SILENT).lines
    assert set(outcome.get_ydata()) == {0.5}
    assert set(shaped.get_ydata()) == {0.125}
    assert panel(figure, ALIGNMENT).lines[0].get_ydata()[0] == pytest.approx(0.301)
    assert words(panel(figure, SILENT)) == ["with the\nbonus", "outcome\nalone"]
    assert figure.get_supxlabel().startswith("Thick and dashed lines: centered mean over 5 logged steps.")


def test_figure_shows_pass_rates_before_and_after(tmp_path):
    axes = panel(learning_curve_figure(make_run(tmp_path)), PASS_RATES)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["test, pass@1", "test, pass@4", "harder, pass@1"]
    assert words(axes) == ["0.31", "before", "0.63", "after", "0.55", "0.75", "0.12", "0.05"]
    link, before, after = axes.lines[:3]
    assert list(link.get_xdata()) == [0.31, 0.63]
    assert (before.get_xdata()[0], before.get_markerfacecolor()) == (0.31, "white")
    assert (after.get_xdata()[0], after.get_markerfacecolor()) == (0.63, after.get_color())
    sides = {text.get_text(): text.get_ha() for text in axes.texts}
    assert (sides["0.12"], sides["0.05"]) == ("left", "right")  # it fell: the numbers still stand outside


def test_figure_shows_the_moment_that_is_there(tmp_path):
    run = make_run(tmp_path)
    manifest = run / "manifest.jsonl"
    manifest.write_text("".join(line for line in manifest.read_text().splitlines(True) if "before.json" not in line))
    RunFolder(run).write_json("evaluation/after.json", json.loads(json.dumps(pass_rates(test={"1": 0.5, "4": None}))))
    axes = panel(learning_curve_figure(run), PASS_RATES)
    assert words(axes) == ["0.50", "after"]
    assert len(axes.lines) == 1


def test_figure_of_an_empty_run_says_not_recorded_in_every_panel(tmp_path):
    figure = learning_curve_figure(make_run(tmp_path, "empty", steps=0, evaluated=False))
    assert [words(axes) for axes in figure.axes] == [["not recorded"]] * 4


@pytest.mark.parametrize("values", [None, [None] * 40])
def test_figure_says_not_recorded_where_a_metric_is_missing_or_null_throughout(tmp_path, values):
    run = RunFolder(make_run(tmp_path))
    rows = open_run(run.path).metrics
    for row in rows:
        del row["gar/alignment_mean"]
        if values:
            row["gar/alignment_mean"] = values[0]
    write_jsonl(run.metrics_path, rows)
    figure = learning_curve_figure(run.path)
    assert words(panel(figure, ALIGNMENT)) == ["not recorded"]
    assert "not recorded" not in words(panel(figure, REWARD)) + words(panel(figure, SILENT))


def test_figure_leaves_a_gap_where_a_step_has_null_and_skips_rows_without_the_metric(tmp_path):
    run = RunFolder.create(tmp_path, "gap")
    run.write_run(seed=0, command=["gar"], config={}, config_text="{}", data_hash=None)
    for step, alignment in enumerate([0.1, None, 0.3], start=1):
        run.append_metrics({"step": step, "gar/alignment_mean": alignment})
    run.append_metrics({"step": 3, "time/step_seconds": 1.0})
    (line,) = panel(learning_curve_figure(run.path), ALIGNMENT).lines
    np.testing.assert_array_equal(line.get_ydata(), [0.1, np.nan, 0.3])


def test_figure_of_one_step_shows_points_at_that_step(tmp_path):
    figure = learning_curve_figure(make_run(tmp_path, steps=1))
    figure.draw_without_rendering()
    for which in (REWARD, ALIGNMENT, SILENT):
        axes = panel(figure, which)
        assert all(line.get_marker() == "o" and line.get_markevery() is None for line in axes.lines)
        low, high = axes.get_xlim()
        assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]
    assert figure.get_supxlabel() == ""


def test_figure_tolerates_the_torn_last_line_of_a_killed_run(tmp_path):
    run = make_run(tmp_path)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 41, "rew')
    assert len(panel(learning_curve_figure(run), REWARD).lines[0].get_xdata()) == 40


def test_figure_keeps_labels_of_close_lines_apart(tmp_path):
    run = RunFolder.create(tmp_path, "close")
    run.write_run(seed=0, command=["gar"], config={}, config_text="{}", data_hash=None)
    for step in (1, 2):
        run.append_metrics({"step": step, "reward": 0.5, "gar/eligible_fraction": 0.5001})
    figure = learning_curve_figure(run.path)
    figure.draw_without_rendering()
    lower, upper = (text.get_window_extent() for text in panel(figure, REWARD).texts)
    assert upper.y0 >= lower.y1 - 1


def test_learning_curve_takes_the_name_of_a_run_as_it_is(tmp_path):
    figure = learning_curve_figure(make_run(tmp_path, "cost$x$_{1}"))
    figure.draw_without_rendering()
    assert figure.get_suptitle() == "cost$x$_{1}"
    assert figure._suptitle.get_parse_math() is False


def test_learning_curve_refuses_what_is_no_run(tmp_path):
    with pytest.raises(RecordError, match="nowhere: no such folder"):
        learning_curve(tmp_path / "nowhere", tmp_path / "curve")
    run = make_run(tmp_path)
    (run / "evaluation" / "after.json").write_text("{")
    with pytest.raises(RecordError, match=r"after\.json is not what was written"):
        learning_curve(run, tmp_path / "curve")
    assert not list(tmp_path.glob("curve*"))


def test_learning_curve_says_where_it_cannot_write(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"curve\.png: cannot be written: (Not a directory|File exists)"):
        learning_curve(make_run(tmp_path), tmp_path / "file" / "curve")


def test_learning_curve_leaves_global_settings_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    learning_curve(make_run(tmp_path), tmp_path / "curve")
    assert dict(matplotlib.rcParams) == before


def test_learning_curve_loads_neither_pyplot_nor_torch(tmp_path):
    code = (
        "import sys; from gar.analysis.learning_curve import learning_curve; learning_curve(*sys.argv[1:]); "
        "print({'matplotlib.pyplot', 'torch'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(make_run(tmp_path, steps=2)), str(tmp_path / "curve")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"


def test_running_mean_averages_the_finite_neighbors():
    values = np.array([1.0, 2.0, np.nan, 6.0, np.inf])
    np.testing.assert_array_equal(running_mean(values, 3), [1.5, 1.5, 4.0, 6.0, 6.0])
    np.testing.assert_array_equal(running_mean(values, 1), [1.0, 2.0, np.nan, 6.0, np.nan])
    np.testing.assert_array_equal(running_mean(np.array([]), 5), [])


def test_learning_curve_of_thousands_of_steps_that_begins_without_alignment_is_drawn(tmp_path):
    run = RunFolder(make_run(tmp_path, steps=0))
    for step in range(1, 2_001):
        run.append_metrics({"step": step, "gar/alignment_mean": None if step < 300 else step / 5_000})
    figure = learning_curve_figure(run.path)
    figure.savefig(tmp_path / "curve.png")
    (marked,) = [line for line in panel(figure, ALIGNMENT).lines if line.get_marker() not in ("None", "")]
    assert marked.get_markevery() == [1_999]
