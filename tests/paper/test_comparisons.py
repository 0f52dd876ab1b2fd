"""Every committed result is read, every table is made, and the pages say what the tables say."""

from dataclasses import replace

import pytest

from gar import RecordError
from gar.comparison import read_comparison
from paper.comparisons import results
from paper.comparisons.__main__ import main, tables
from paper.comparisons.results import GONE, HERE, MARK, NAMES, collect, read_results, write_results
from tests.support.errors import raises

pytestmark = pytest.mark.paper
UNFINISHED = ("shorthand", "tuning")  # runs go on


@pytest.fixture(scope="module")
def all_results():
    return {name: read_results(name) for name in NAMES}


def test_every_comparison_has_results_for_its_rows_and_seeds(all_results):
    finished = {name: found for name, found in all_results.items() if not name.startswith(UNFINISHED)}
    for name, committed in finished.items():
        settings = read_comparison(str(HERE / f"{name}.yaml"))
        planned = {(row.label, seed) for row in settings.runs for seed in settings.seeds}
        rest = committed.results.keys() - planned
        assert planned <= committed.results.keys()
        assert {label for label, _ in rest} == GONE.get(name, {}).keys()
        assert {row.label: [*settings.against(row)] for row in settings.runs}.items() <= committed.against.items()


def test_commands_print_tables_and_draw(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["paper.comparisons", "word-methods", "--figures", str(tmp_path)])
    main()
    assert "| expert-steps | 2 of 2 |" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "curves.svg"}


def test_collect_puts_new_results_beside_the_old_and_keeps_gone_rows(all_results, tmp_path, monkeypatch):
    committed = all_results["rate"]
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(results, "GONE", {"rate": {"rate-1e-4": "abc1234"}})
    write_results(committed)
    assert read_results("rate") == committed
    new = replace(committed.results["rate-1e-3", 100], wall_seconds=1.0)
    collect("rate", [new], {"rate-1e-3-seed-100": {"words": 0.5}})
    read = read_results("rate")
    assert read.results == committed.results | {("rate-1e-3", 100): new}
    assert read.measured == committed.measured | {"rate-1e-3-seed-100": {"words": 0.5}}
    assert f"| rate-1e-4 {MARK} | 3 of 3 |" in tables(read)
    with raises(RecordError):
        collect("rate", [replace(new, prompts_hash="shorter")], {})
    assert read_results("rate") == read
