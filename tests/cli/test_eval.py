"""`gar eval`: the stages on the embedded model and task, and what the command rejects."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gar.cli.main import main
from gar.records import open_run
from gar.report.build import write_report
from tests.support.processes import SECONDS, running

SET = ["--benchmark", "arithmetic", "--max-new-tokens", "40"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """An evaluation of 24 problems, eight samples each."""
    out = tmp_path_factory.mktemp("evals") / "model"
    assert main(["eval", "run", "embedded", *SET, "--samples", "8", "--limit", "24", "--out", str(out)]) == 0
    return out / "arithmetic"


def test_eval_explains_what_it_rejects_before_torch_is_loaded(capsys):
    for arguments, text in (
        (["run", "embedded", "--benchmark", ","], "--benchmark NAME"),
        (["run", "embedded", *SET, "--samples", "2", "--pass-at-k", "3"], "pass@3 needs 3 samples"),
        (["score"], "name a folder"),
        (["score", "nowhere"], "nowhere: no such folder"),
        (["table", "a", "b"], "a: no such folder"),
    ):
        assert main(["eval", *arguments]) == 1
        said = capsys.readouterr().err
        assert text in said
        assert "loading torch" not in said


def test_the_page_about_an_evaluation_shows_what_the_terminal_shows(finished, tmp_path, capsys):
    assert main(["eval", "score", str(finished)]) == 0
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    report = write_report([finished], tmp_path / "page.html")
    assert "steps" not in report.subtitle
    assert re.fullmatch(r"arithmetic: pass@1 0\.\d{3}(, pass@\d 0\.\d{3})+", report.headline)
    shown = report.all_runs.iloc[0]
    assert (shown["steps"], shown["rollouts"]) == ("–", "–")
    assert not any("→" in value for value in shown)
    (title, table), *_ = report.tables.items()
    assert title in printed
    assert len(table) > 10
    assert all(" ".join(" ".join(row).split()) in printed for row in table.itertuples(index=False))


def test_eval_run_writes_every_sample_and_its_verdict(finished):
    assert sorted(path.name for path in finished.iterdir()) == [
        "SHA256SUMS", "metrics.json", "problems.jsonl", "responses.jsonl", "samples.parquet", "set.json",
    ]  # fmt: skip
    run = open_run(finished)
    assert run.settings["sampling"] == {
        "num_samples": 8, "temperature": 1.0, "top_p": 1.0, "seed": 0, "max_new_tokens": 40,
    }  # fmt: skip
    assert run.settings["prompt"]["template"] == "plain"
    rows = run.samples("after").to_pylist()
    assert [(row["problem_id"], row["response_index"]) for row in rows] == [
        (f"test-{number}", sample) for number in range(24) for sample in range(8)
    ]
    numbers = json.loads((finished / "metrics.json").read_text())["sets"]["arithmetic"]
    right = [row for row in rows if row["verified"] and row["well_formatted"]]
    assert numbers["pass_at"]["1"] == numbers["majority_at"]["1"] == pytest.approx(len(right) / 192)
    assert numbers["pass_at"]["8"] == pytest.approx(len({row["problem_id"] for row in right}) / 24)
    assert numbers["mean_response_tokens"] == pytest.approx(sum(row["num_tokens"] for row in rows) / 192)
    assert sum(numbers["status_counts"].values()) == 192
    low, high = numbers["interval_95"]["1"]
    assert low < numbers["pass_at"]["1"] < high


def test_report_and_score_say_again_what_run_said_and_score_takes_other_ks(finished, tmp_path, capsys):
    paths = [finished / "metrics.json", finished / "samples.parquet"]
    before = [path.read_bytes() for path in paths]
    assert main(["eval", "score", str(finished.parent)]) == 0
    assert [path.read_bytes() for path in paths] == before
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    rate = json.loads(before[0])["sets"]["arithmetic"]["pass_at"]["1"]
    assert main(["report", str(finished), "--out", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"arithmetic: pass@1 {rate:.3f}, ")
    assert "all 192 samples of evaluations" in said
    assert ["pass@1", f"{rate:.3f}"] in [row[:2] for row in cells]
    finished = shutil.copytree(finished.parent, tmp_path / "copy") / finished.name
    assert main(["eval", "score", str(finished), "--pass-at-k", "3", "5"]) == 0
    assert list(open_run(finished).evaluations["after"]["arithmetic"].pass_at) == ["3", "5"]
    assert main(["eval", "score", str(finished), "--pass-at-k", "9"]) == 1
    assert "pass@9 needs 9 samples per problem" in capsys.readouterr().err
    command = ["eval", "run", "embedded", *SET, "--out", str(finished.parent), "--samples", "8", "--limit", "24"]
    assert main([*command, "--temperature", "0.7"]) == 1
    assert "sampling.temperature was 1.0, is 0.7" in capsys.readouterr().err


def test_eval_says_a_degenerate_result_above_the_table_and_exits_with_3(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["eval", "run", "embedded", "--benchmark", "arithmetic", "--limit", "2", "--samples", "1"]
    assert main([*command, "--max-new-tokens", "2"]) == 3
    assert capsys.readouterr().out.startswith("All 2 responses were cut off at the length limit.")
    assert main(["eval", "score", "evals/embedded", "--allow-degenerate"]) == 0


def test_table_ends_quietly_if_nobody_reads_it(finished):
    command = [sys.executable, "-m", "gar", "eval", "table", str(finished)]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.communicate(timeout=SECONDS)[1], process.returncode) == (b"", 0)
