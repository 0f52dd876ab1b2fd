"""studies/word_problems.py counts training responses of finished runs, and the page says what it counted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gar.evaluation.text_tables import markdown_text
from gar.records.files import read_json
from studies.word_problems import COUNTS, quarters, table

ROOT = Path(__file__).parents[2]
STEPS = "<think>4 * 6 = 24. 24 - 5 = 19.</think><answer>19</answer>"
EXPRESSION = "<think>4 * 6 - 5 = 19 pens.</think><answer>19</answer>"


def write_step(run: Path, step: int, rows: list[tuple[str, bool, float | None]]) -> None:
    (run / "rollouts").mkdir(parents=True, exist_ok=True)
    texts, verified, alignment = zip(*rows, strict=True)
    columns = {
        "step": [step] * len(rows),
        "group_index": [0] * len(rows),
        "response_index": list(range(len(rows))),
        "response": texts,
        "verified": verified,
        "alignment": pa.array(alignment, pa.float64()),
    }
    pq.write_table(pa.table(columns), run / "rollouts" / f"step-{step:06d}.parquet")


def test_quarters_are_means_over_correct_responses(tmp_path):
    write_step(tmp_path, 1, [(STEPS, True, 0.5), (EXPRESSION, True, None), (EXPRESSION, False, 0.9)])
    for step in (2, 3):
        write_step(tmp_path, step, [(EXPRESSION, True, 0.25)])
    write_step(tmp_path, 4, [(STEPS, False, None)])
    first, second, _, last = quarters(tmp_path)
    assert first == {"correct": pytest.approx(2 / 3), "by steps": 0.5, "with units": 0.5, "alignment": 0.5}
    assert second == {"correct": 1.0, "by steps": 0.0, "with units": 1.0, "alignment": 0.25}
    assert last == {"correct": 0.0, "by steps": None, "with units": None, "alignment": None}


def test_the_page_has_the_table_of_the_committed_counts():
    page = (ROOT / "docs" / "word-problems.md").read_text()
    assert markdown_text([table(read_json(ROOT / COUNTS))], []).strip() in page
