"""The committed results of the bench, and the tables that pages show of them."""

import re
from pathlib import Path

import pytest

from paper.analyses.similarities.committed import main, read_benches, table_of, write_benches

pytestmark = pytest.mark.paper

ROOT = Path(__file__).parents[3]
TABLES = {
    "paper/analyses/signals.md": [(name, f"{name}-grpo", f"{name}-{gar}") for name, gar in
                        (("embedded", "gar"), ("which-way", "gar-grpo"), ("whose-voice", "gar-grpo"))],
    "paper/comparisons/word-problems.md": [("smollm2-word-problems", "smollm2-word-problems-gar")],
}  # fmt: skip


@pytest.mark.parametrize("page", TABLES)
def test_tables_of_a_page_are_those_of_the_committed_results(page):
    benches = read_benches()
    rows = {row for names in TABLES[page] for row in table_of([benches[name] for name in names]).splitlines()}
    shown = re.findall(r"^\|[^|]+(?:\| \*{0,2}\d\.\d\d\*{0,2} ){6,}\|$", (ROOT / page).read_text(), re.MULTILINE)
    assert len(shown) >= 10
    assert not [row for row in shown if row.replace("**", "") not in rows]


def test_what_is_written_is_read_again(tmp_path, capsys):
    benches = read_benches()
    write_benches(benches, tmp_path / "signals.parquet")
    assert read_benches(tmp_path / "signals.parquet") == benches
    main(["which-way"])
    assert "| text | 1.00 | 0.00 | 1.00 | 1.00 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
