"""What all figures share."""

import io

from gar.analysis.style import add_caption, paper_figure


def test_a_caption_stays_inside_the_figure():
    name = "gar-grpo-" + "arithmetic" * 8  # a run may have a name of any length, without a space to break at
    with paper_figure(3, width=3.35) as figure:
        add_caption(figure, f"{name}, problem train-1234: n = 64 (64 fresh responses).\nA second line.")
    figure.savefig(io.BytesIO())  # lays the figure out
    box, page = figure._supxlabel.get_window_extent(), figure.bbox  # pyright: ignore
    assert page.x0 <= box.x0 <= box.x1 <= page.x1
    assert page.y0 <= box.y0
    assert "A second line." in figure._supxlabel.get_text().splitlines()  # pyright: ignore
