"""`gar report --text`: groups in the terminal, the clearest signal first, and nothing that a terminal obeys."""

import re

import pytest

from gar.cli.main import main
from gar.records import RunFolder
from tests.report.runs import make_run, rollout, sample, wrong
from tests.support.runs import relist, write_samples


def printed(capsys, *arguments) -> str:
    assert main(["report", *map(str, arguments), "--text"]) == 0
    return capsys.readouterr().out


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two steps of two groups. Alignments are widest apart in group 1 of step 2."""
    monkeypatch.setenv("COLUMNS", "120")
    rollouts = {
        1: [rollout(1, 0, 0, response="low one"), rollout(1, 0, 1, response="high one"), wrong(1, 0, 2)],
        2: [
            rollout(2, 1, 0, response="far below", alignment=-0.5),
            rollout(2, 1, 1, response="nearest", alignment=0.75),
            wrong(2, 1, 2, response="not right"),
        ],
    }
    return make_run(tmp_path, rollouts=rollouts, evaluations={})


def test_groups_are_printed_by_signal_and_responses_by_alignment_beside_the_expert(run, capsys):
    out = printed(capsys, run)
    order = [
        out.index(text) for text in ("step 2", "nearest", "far below", "not right", "step 1", "high one", "low one")
    ]
    assert order == sorted(order)
    assert re.search(r"2: right, alignment 0\.750, reward 1\.050, .*│ <think>", out)  # beside the expert solution
    assert not (run / "report.html").exists()


def test_flags_page_through_the_groups(run, capsys):
    assert "step 1" not in printed(capsys, run, "--groups", "1")
    assert "step 2" not in printed(capsys, run, "--skip", "1")
    assert "step 2" not in printed(capsys, run, "--step", "1")
    for arguments, text in ((["--step", "7"], "2 steps from 1 to 2"), (["--out", "page.html"], "writes no page")):
        assert main(["report", str(run), "--text", *arguments]) == 2
        assert text in capsys.readouterr().err


def test_no_escape_sequence_of_a_model_reaches_the_terminal(tmp_path, capsys):
    hostile = "\x1b[2J\x1b]0;mine\x07 [red]marked[/red] \r\x9b31m" + "x" * 3000
    run = make_run(tmp_path, rollouts={1: [rollout(1, 0, 0, response=hostile, prompt=hostile, problem_id=hostile)]})
    out = printed(capsys, run)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)
    assert "\\x1b[2J" in out
    assert "[red]marked[/red]" in out
    assert "characters more]" in re.sub(r"[\s│]+", " ", out)


def test_samples_of_an_evaluation_are_printed_too(tmp_path, capsys):
    run = make_run(tmp_path, rollouts={})
    rows = [sample(0, 0, response="wrong way", verified=False), sample(0, 1, response="right way")]
    write_samples(RunFolder(run), "after", rows)
    relist(run)
    out = printed(capsys, run)
    assert "test, after training" in out
    assert out.index("right way") < out.index("wrong way")
