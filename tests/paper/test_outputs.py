"""What an analysis prints."""

import pyarrow as pa
import pytest

from paper.analyses.outputs import Output, present

pytestmark = pytest.mark.paper


def test_a_wide_table_breaks_no_number_and_no_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"question {i} of all" for i in range(8)]
    note = "a sentence that is too long for its column, and so is folded between its words"
    rows = [["paper: mean of gradient", *["0.912 (0.88 to 0.94)"] * 8, note]]
    present(Output(name="wide", title="A title", headings=["similarity", *names, "note"], rows=rows,
                   data=pa.table({"x": [1]})), tmp_path)  # fmt: skip
    shown = capsys.readouterr().out
    assert all(name in shown for name in [*names, "paper: mean of gradient"])
    assert shown.count("0.912 (0.88 to 0.94)") == 8
    assert note not in shown
    assert max(map(len, shown.splitlines())) < 300


def test_a_narrow_table_keeps_to_the_console(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [["theorem", "a sentence that is long enough to be folded, so that it stands on two lines of the table"]]
    present(Output(name="narrow", title="A title", headings=["statement", "text"], rows=rows,
                   data=pa.table({"x": [1]})), tmp_path)  # fmt: skip
    table = [line for line in capsys.readouterr().out.splitlines() if not line.endswith(".parquet")]
    assert max(map(len, table)) <= 80
