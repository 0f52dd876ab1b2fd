"""Histograms of the alignment on the page."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gar.records import RolloutRecord, open_run
from gar.report.histograms import alignment_svg
from tests.report.runs import make_run
from tests.support.rows import rollout

SVG = "{http://www.w3.org/2000/svg}"


def drawn(folder: Path, records: Sequence[RolloutRecord], at_steps: Sequence[int] = ()) -> ElementTree.Element:
    """The histograms of a run with these rollouts."""
    by_step = {step: [record for record in records if record.step == step] for step in {r.step for r in records}}
    return ElementTree.fromstring(alignment_svg(open_run(make_run(folder, rollouts=by_step)), at_steps))


def words(picture: ElementTree.Element) -> list[str]:
    return [str(text.text) for text in picture.iter(f"{SVG}text")]


def test_alignment_is_that_of_correct_responses_alone(tmp_path):
    first = [rollout(1, 0, i, alignment=b) for i, b in enumerate((0.1, 0.3))]
    gated = rollout(1, 0, 2, eligible=False, verified=False, alignment=0.9, reward=0.0)
    second = [rollout(2, 1, 0, alignment=0.6), rollout(2, 1, 1, alignment=None)]
    shown = words(drawn(tmp_path, [*first, gated, *second]))
    assert [each for each in shown if each.startswith(("mean", "n ="))] == ["mean 0.20", "n = 2", "mean 0.60", "n = 1"]


def test_a_bar_is_as_high_as_its_share_and_lies_where_its_values_do(tmp_path):
    values = [0.0, 0.5, 0.5, 1.0]
    picture = drawn(tmp_path, [rollout(1, 0, i, alignment=value) for i, value in enumerate(values)])
    bars = [
        {name: float(bar.get(name, "")) for name in ("x", "width", "y", "height")} for bar in picture.iter(f"{SVG}rect")
    ]
    heights = [bar["height"] for bar in bars]
    assert heights == pytest.approx([heights[0], 2 * heights[0], heights[0]], abs=0.11)
    assert {round(bar["y"] + bar["height"]) for bar in bars} == {150}  # they stand on one line
    places = {str(text.text): float(text.get("x", "")) for text in picture.iter(f"{SVG}text")}
    for bar, tick in zip(bars, ("0", "0.5", "1"), strict=True):
        assert bar["x"] - 0.11 <= places[tick] <= bar["x"] + bar["width"] + 0.11


@pytest.mark.parametrize(
    ("at_steps", "titles"),
    [((), ["1 to 2", "7 to 8", "13 to 14", "19 to 20"]), ((2, 19), ["2 to 3", "19 to 20"])],
)
def test_alignment_histograms_are_of_a_tenth_of_the_run_at_the_chosen_steps(tmp_path, at_steps, titles):
    shown = words(drawn(tmp_path, [rollout(s, 0, 0, alignment=s / 100) for s in range(1, 21)], at_steps))
    assert [each for each in shown if each.startswith("steps")] == [f"steps {title}" for title in titles]
    assert f"mean {0.195:.2f}" in shown


def test_equal_alignments_have_one_bar_and_a_tenth_without_any_says_so(tmp_path):
    records = [rollout(step, 0, 0, alignment=None if step == 1 else 0.25) for step in (1, 2)]
    picture = drawn(tmp_path, records)
    assert len([*picture.iter(f"{SVG}rect")]) == 1
    assert "none scored" in words(picture)


def test_a_run_without_alignment_has_no_histogram(tmp_path):
    wrong = [rollout(1, 0, i, eligible=False, alignment=None, reward=0.0) for i in range(2)]
    assert alignment_svg(open_run(make_run(tmp_path, rollouts={1: wrong}))) == ""
