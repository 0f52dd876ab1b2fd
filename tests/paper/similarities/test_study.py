"""The command's output on the embedded model, and on two policies."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gar.errors import ConfigError, DataError
from paper.analyses.similarities.__main__ import main
from paper.analyses.similarities.forms import CONTROLS, SIMILARITIES
from paper.analyses.similarities.study import Scope, SignalStudy, signal_study, signals_output
from tests.files import write_jsonl

pytestmark = pytest.mark.paper

SMALL = Scope(num_problems=6, sampled_problems=4)


@pytest.fixture(scope="module")
def study(embedded) -> SignalStudy:
    return signal_study(embedded, SMALL)


def test_signal_study_of_the_embedded_policy_finds_what_is_known(study):
    """On the base policy the raw gradient sees the method past the words, and a text's similarity only the words."""
    shares = study.bench.shares
    assert [shares[name]["over-wording: running"].share for name in ("gradient", "text")] == [1.0, 0.0]
    assert shares["length"]["sound: wrong value"].share == 0.5
    assert shares["ordered, scaled"]["sound: wrong value"].share == 1.0
    assert set(shares) == {*SIMILARITIES, *CONTROLS}


def test_signals_output_holds_every_share(study, tmp_path):
    output = signals_output(study)
    assert output.headings[-1] == "least"
    assert output.text is not None
    row = next(row for row in output.rows if row[0] == "text")
    assert row[-1] == "0.00"
    numbers = json.loads(json.dumps(output.numbers, allow_nan=False))
    share = numbers["shares"]["text"]["over-wording: running"]
    assert share["share"] == 0.0
    assert share["num_problems"] == 6
    assert "| text |" in output.text
    assert "## The same, pairs of equal length" in output.text
    mean = study.bench.shares["text"]["over-wording: running"]
    assert f"{mean.mean_better:.3f} / {mean.mean_worse:.3f}" in output.text
    # 1: lengths never differ where one value is changed
    assert numbers["equal_lengths"]["text"]["sound: wrong value"]["num_triples"] == 12
    assert any(note.startswith("not asked, since there is no data for it: natural") for note in output.notes)


def test_signals_output_of_questions_without_a_scored_pair_has_no_nan(study):
    nothing = replace(study.bench.shares["text"]["own: any"], share=math.nan, num_triples=0)
    shares = {name: {**row, "own: any": nothing} for name, row in study.bench.shares.items()}
    output = signals_output(replace(study, bench=replace(study.bench, shares=shares)))
    assert output.rows[0][5] == "-"
    assert json.dumps(output.numbers, allow_nan=False)


def test_signal_study_keeps_to_the_initial_policy(embedded):
    """A policy that is its own start has the same shares twice."""
    study = signal_study(embedded, replace(SMALL, num_problems=3, sampled_problems=0), embedded)
    assert study.initial == embedded.name
    for name in SIMILARITIES:
        assert study.bench.shares[f"{name}, initial"] == study.bench.shares[name]


def test_signal_study_refuses_a_start_with_another_tokenizer(embedded):
    other = replace(embedded, tokenizer=SimpleNamespace(get_vocab=dict), name="other")
    with pytest.raises(ConfigError, match="other and embedded have different tokenizers"):
        signal_study(embedded, SMALL, other)


def test_signal_study_of_a_file_samples_no_problems_that_nobody_named(embedded, tmp_path):
    rows = [{"prompt": "1+1=", "solution": f"[ = {i} ]", "method": "ab"[i // 2], "id": "p"} for i in range(4)]
    path = write_jsonl(tmp_path / "labeled.jsonl", rows)
    study = signal_study(embedded, Scope(solutions=path))
    assert set(study.bench.shares["text"]) == {"equal-wording: a", "equal-wording: b"}
    assert not any(note.startswith("sampled:") for note in study.notes)


def test_signal_study_without_a_question_says_so(embedded, tmp_path):
    path = write_jsonl(tmp_path / "labeled.jsonl", [{"prompt": "1+1=", "solution": "[ = 2 ]", "method": "a"}])
    with pytest.raises(DataError, match="embedded: there is no question to ask: no two solutions"):
        signal_study(embedded, Scope(solutions=path))


def test_the_bench_runs_by_its_command(tmp_path, capsys):
    main(["embedded", "--problems", "2", "--sampled-problems", "0", "--out", str(tmp_path)])
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet", ".json", ".md", ".svg", ".png"}
    assert "as printed" in capsys.readouterr().out
