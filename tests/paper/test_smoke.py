"""The smoke of everything that paper/README.md lists."""

import sys

import pytest

from gar.comparison import read_comparison
from paper.smoke import NEEDS, ROOT, commands, parts
from tests.support.processes import completed

pytestmark = pytest.mark.paper


def test_the_smoke_has_every_row_of_every_comparison_and_the_commands_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [name for name, _, _ in parts()]
    for source in (ROOT / "paper/comparisons").glob("*.yaml"):
        assert {f"{source.stem}, {row.label}" for row in read_comparison(str(source)).runs} <= set(names)
    listed = list(commands())
    assert any("--method sft-grpo " in command for command in listed)  # the page names it after `--method sft`
    assert all(any(word in command for command in listed) for word in NEEDS)
    assert {need for name, need, _ in parts() if name.startswith("word-")} == {"smollm2"}  # is not there


@pytest.mark.slow
def test_rows_run_once_and_a_failure_is_named(tmp_path):
    command = [sys.executable, "-m", "paper.smoke", "--work", str(tmp_path), "--only", "guided, "]
    first = completed(command, cwd=ROOT, seconds=1800)
    assert first.stdout.count("   ok\n") == 4, first.stdout + first.stderr
    assert completed(command, cwd=ROOT).stdout == ""
    (tmp_path / "done").write_text("")
    (tmp_path / "runs/tasks/long-chains/guided.jsonl").write_text("no JSON\n")
    again = completed(command, cwd=ROOT, seconds=1800)
    assert (again.returncode, again.stdout.count("   ok\n"), again.stdout.count("FAILED: ")) == (1, 2, 2)
