"""`gar score`: from a command line to a file of scores, a summary for people, and a process that may be killed."""

import json
from pathlib import Path
from unittest import mock

import gar.scoring.files
import gar.scoring.io
from gar.cli.main import main
from gar.data.arithmetic import METHODS, WORDINGS
from gar.records import Manifest
from gar.scoring.job import ScoreJob
from tests.scoring.test_files import rows_of
from tests.support.files import write_jsonl

RESPONSES = len(METHODS) * len(WORDINGS)


RIGHT = {name: value for name, value in rows_of(1)[0].items() if name != "id"}
RIGHT["responses"] = RIGHT["responses"][:RESPONSES]


def test_score_flags_set_columns_sections_and_output_and_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    file = write_jsonl(tmp_path / "rows.jsonl", [RIGHT])
    seen = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(gar.scoring.files, "score_file", seen)
    monkeypatch.setattr(gar.scoring.io, "check_input", lambda job: None)

    def parse(*arguments: str) -> ScoreJob:
        assert main(["score", "embedded", file, *arguments]) == 130
        assert "gar score: interrupted. Run the same command again to continue." in capsys.readouterr().err
        return seen.call_args.args[0]

    assert parse().model_dump() == ScoreJob(model="embedded", file=file).model_dump()
    job = parse(
        "--out", "o.parquet", "--prompt-field", "q", "--responses-fields", "a.b", "c", "--tokens",
        "--answer-in-solution", "--expert-fields", "x", "y", "--signal.kind", "gradient",
        "--reward.bonus_weight", "0.1",
        "--reward.clip", "false", "--limit", "9", "--device", "cuda:1", "--dtype", "bfloat16",
    )  # fmt: skip
    assert (job.out, job.prompt_field, job.responses_fields) == (Path("o.parquet"), "q", ("a.b", "c"))
    assert (job.tokens, job.answer_in_solution, job.expert_fields) == (True, True, ("x", "y"))
    assert job.reward.clip is False
    assert (job.signal.kind, job.reward.bonus_weight, job.limit, job.device) == ("gradient", 0.1, 9, "cuda:1")
    assert job.model_settings().dtype == "bfloat16"
    assert parse("--format", "none").verify.format == parse("--format=none").verify.format == "none"


def test_score_writes_beside_nobody_and_prints_a_summary(tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    file = write_jsonl(tmp_path / "data" / "rows.jsonl", [RIGHT, "{broken", RIGHT | {"responses": ["", "7"]}])
    monkeypatch.chdir(tmp_path)
    assert main(["score", "embedded", file, "--verify.num-workers", "1"]) == 0
    captured = capsys.readouterr()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "data", "rows.scores.errors.jsonl", "rows.scores.jsonl", "rows.scores.manifest.jsonl", "rows.scores.run.json",
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["rows.jsonl"]
    assert len((tmp_path / "rows.scores.jsonl").read_text().splitlines()) == RESPONSES + 2
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.out.splitlines() if "│" in line]
    total = RESPONSES + 2
    for expected in (
        ["rows read", "3", ""],
        ["rows left out, see below", "1", "33.3%"],
        ["responses", f"{total}", ""],
        ["verification: ok", f"{RESPONSES}", f"{RESPONSES / total:.1%}"],
        ["verification: unparsed", "2", f"{2 / total:.1%}"],
        ["signal: no tokens", "1", f"{1 / total:.1%}"],
        ["eligible for a bonus", f"{RESPONSES}", f"{RESPONSES / total:.1%}"],
    ):
        assert expected in cells
    (aligned,) = [row for row in cells if row[0] == "right"]
    assert aligned[1] == f"{RESPONSES}"
    assert "1 rows repeat the prompt of an earlier row." in captured.out
    assert "Rows left out  rows.scores.errors.jsonl\nScores         rows.scores.jsonl\n" in captured.out
    assert all(len(line) <= 80 for line in captured.out.splitlines() if "│" in line)
    assert "scoring" not in captured.err  # no progress bar where there is no terminal
    run = json.loads((tmp_path / "rows.scores.run.json").read_text())
    assert run["command"] == f"gar score embedded {file} --verify.num-workers 1"
    manifest = Manifest(tmp_path, name="rows.scores.manifest.jsonl")
    assert list(manifest.entries) == ["rows.scores.jsonl", "rows.scores.errors.jsonl", "rows.scores.run.json"]
    assert [manifest.fault(name) for name in manifest.entries] == [None, None, None]
    assert not [*tmp_path.glob("*.partial.*")]


def test_score_ends_with_a_status_and_a_reason_above_the_table(tmp_path, capsys):
    for responses, flags, status, words in (
        (["", "99"], [], 3, "None of 2 responses is in the format 'think-answer'"),
        (["7", "8"], ["--allow-degenerate"], 0, "None of 2 responses is in the format 'think-answer'"),
        (["Natalia sold clips in April. 7"] * 2, ["--format", "none"], 3, "unknown to the tokenizer"),
    ):
        file = write_jsonl(tmp_path / "rows.jsonl", [RIGHT | {"responses": responses}])
        assert main(["score", "embedded", file, "--out", str(tmp_path / "out.jsonl"), "--overwrite", *flags]) == status
        assert words in capsys.readouterr().out.splitlines()[0]
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
