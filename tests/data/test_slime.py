"""slime's rows: what slime 0.3 reads from --prompt-data with --input-key prompt --label-key label."""

import json

import pytest

from gar.cli.data import main
from gar.data.slime import slime_row
from gar.errors import ConfigError, DataError
from gar.types import Anchor, Problem, Tags
from tests.support.files import write_jsonl

PROBLEM = Problem(id="n-1", prompt="3+4=", answer="7", anchors=(Anchor(text="3+4 is 7"), Anchor(text=" ")))
TALK = [{"role": "user", "content": "3+4="}]


def test_slime_row_asks_for_the_format_and_keeps_the_anchors():
    row = slime_row(PROBLEM, "think-answer", chat=True, tags=Tags(think_open="<t>", think_close="</t>"))
    assert row["prompt"][0]["content"].startswith("3+4=\n\nFirst work the problem out between <t> and </t>.")
    assert (row["label"], row["metadata"]) == ("7", {"id": "n-1", "anchors": ["3+4 is 7"]})
    assert slime_row(PROBLEM, "plain", chat=True)["prompt"] == TALK
    assert slime_row(PROBLEM, "plain", chat=False)["prompt"] == "3+4="
    with pytest.raises(DataError, match="'n-3'"):  # only a chat template makes text of messages
        slime_row(Problem(id="n-3", prompt=TALK, answer="7"), "plain", chat=False)


def test_gar_data_slime_writes_every_problem(tmp_path, capsys):
    source, out = tmp_path / "problems.jsonl", tmp_path / "slime.jsonl"
    rows = [{"id": f"p{i}", "prompt": f"{i}+1=", "answer": str(i + 1), "expert_solution": "so" if i else None}
            for i in range(3)]  # fmt: skip
    write_jsonl(source, rows)
    assert main(["slime", str(source), str(out), "--no-chat", "--template", "plain"]) == 0
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prompt"] for row in written] == ["0+1=", "1+1=", "2+1="]
    assert [row["metadata"]["anchors"] for row in written] == [[], ["so"], ["so"]]
    assert "1 of 3 lack one" in capsys.readouterr().out
    for file in (out, tmp_path / "rows.parquet"):  # it exists; it is no .jsonl
        with pytest.raises(ConfigError):
            main(["slime", str(source), str(file)])
