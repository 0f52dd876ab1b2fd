"""Every committed result is read, every table is made, and the pages say what the tables say."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gar import RecordError
from gar.comparison import read_comparison
from gar.evaluation.text_tables import markdown_text
from paper.comparisons import results, word_problems
from paper.comparisons.__main__ import main, tables
from paper.comparisons.results import GONE, HERE, MARK, NAMES, collect, read_results, write_results
from paper.comparisons.signals import all_tables, notes, read_tasks, steps_to_end

pytestmark = pytest.mark.paper
ROOT = Path(__file__).parents[2]
UNFINISHED = ("shorthand", "tuning")  # runs go on
SCORE = re.compile(r"\d\.\d{3} ± \d\.\d{3}")


@pytest.fixture(scope="module")
def all_results():
    return {name: read_results(name) for name in NAMES}


def test_every_comparison_has_results_for_its_rows_and_seeds(all_results):
    finished = {name: found for name, found in all_results.items() if not name.startswith(UNFINISHED)}
    assert len(finished) == 12
    assert sum(len(committed.results) for committed in finished.values()) == 599
    for name, committed in finished.items():
        settings = read_comparison(str(HERE / f"{name}.yaml"))
        planned = {(row.label, seed) for row in settings.runs for seed in settings.seeds}
        rest = committed.results.keys() - planned
        assert planned <= committed.results.keys()
        assert {label for label, _ in rest} == GONE.get(name, {}).keys()
        assert {row.label: [*settings.against(row)] for row in settings.runs}.items() <= committed.against.items()


def test_tables_of_small_comparisons_are_those_of_the_page(all_results):
    page = (HERE / "README.md").read_text()
    for name in ("rate", "on-policy", "worse-expert"):
        scores = SCORE.findall(tables(all_results[name]).partition("Differences")[0])
        assert len(scores) == 6 * len(all_results[name].against)
        assert all(score in page for score in scores[::3])  # pass@1 on both sets


def test_signals_page_has_the_tables_of_the_results():
    tasks = read_tasks()
    text = markdown_text(all_tables(tasks), notes([task.name for task in tasks.values()])).strip()
    assert text in (HERE / "signals.md").read_text()
    assert text.count(", p ") == 93  # the tests of one family


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0] * 40 + [1.0] * 60, 49),  # nine of ten steps from 40 on
        ([0.5] * 100, 1),
        ([1.0] * 50 + [0.0] * 10 + [1.0] * 40, 69),  # it stays there only after the gap
    ],
)
def test_steps_to_end_is_where_the_mean_of_ten_steps_stays_high(all_results, values, expected):
    run = next(iter(all_results["rate"].results.values()))
    curve = {"gar/eligible_fraction": {"step": list(range(1, 101)), "value": values}}
    assert steps_to_end(replace(run, curves=curve)) == expected
    assert steps_to_end(replace(run, curves={})) is None


@pytest.mark.parametrize("name", word_problems.COMPARISONS)
def test_word_problems_page_has_the_tables_of_the_results(all_results, name):
    runs = dict(sorted(all_results[name].measured.items()))
    assert markdown_text(word_problems.tables(runs), []).strip() in (HERE / "word-problems.md").read_text()


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
    with pytest.raises(RecordError, match="not trained on the same problems"):
        collect("rate", [replace(new, prompts_hash="shorter")], {})
    assert read_results("rate") == read
