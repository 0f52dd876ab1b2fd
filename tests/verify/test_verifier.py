"""`Verifier`: responses in, verdicts out, also by a user's grader, and compared with labels of real responses."""

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gar.errors import ConfigError
from gar.types import Status, Verdict
from gar.verify import Verifier
from tests.support.errors import raises
from tests.support.processes import completed


def response(answer: str) -> str:
    return f"<think> some thought </think> <answer> {answer} </answer>"


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(timeout_seconds=20.0) as verifier:
        yield verifier


def test_verify_right_and_well_formatted_are_separate_facts(verifier: Verifier) -> None:
    texts = [response("7"), response("8"), "<answer> 7 </answer>", "<answer> 8 </answer>"]
    verdicts = verifier.verify(texts, ["7"] * 4)
    facts = [(verdict.verified, verdict.well_formatted) for verdict in verdicts]
    assert facts == [(True, True), (False, True), (True, False), (False, False)]
    assert verdicts[0] == Verdict(status=Status.OK, grade=1.0, verified=True, well_formatted=True, answer="7")
    assert verdicts[2].detail == "0 <think>, expected 1"
    (verdict,) = verifier.verify(["I cannot say"], ["7"])
    assert (verdict.status, verdict.answer, verdict.verified) == (Status.UNPARSED, None, False)
    assert verdict.detail == "no answer found; 0 <think>, expected 1"


def test_verify_plain_numbers_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    verdicts = Verifier().verify([response("7"), response("8"), response("7 apples")], ["7"] * 3)
    assert [verdict.status for verdict in verdicts] == [Status.OK, Status.WRONG, Status.OK]


def test_verify_takes_an_answer_and_a_prefilled_flag_for_each_response(verifier: Verifier) -> None:
    texts = [response("7"), "some thought </think> <answer> 7 </answer>"]
    assert [v.well_formatted for v in verifier.verify(texts, ["7"] * 2, prefilled_think=[False, True])] == [True, True]
    assert [v.well_formatted for v in verifier.verify(texts, ["7"] * 2, prefilled_think=True)] == [False, True]
    assert [v.well_formatted for v in verifier.verify(texts, ["7"] * 2)] == [True, False]
    for responses, prompts in ((["a", "b"], None), (["7"], ["a", "b"])):
        with pytest.raises(ValueError, match="expected equal lengths"):
            verifier.verify(responses, ["7"], prompts=prompts)


def test_verify_pairs_each_response_with_its_prompt(verifier: Verifier) -> None:
    prompts = [r"Simplify $\frac{2}{4}$.", r"Simplify $\frac{3}{6}$."]
    verdicts = verifier.verify([response(r"\frac{2}{4}")] * 2, ["1/2"] * 2, prompts=prompts)
    assert [verdict.status for verdict in verdicts] == [Status.WRONG, Status.OK]


def test_verify_custom_grader_gets_the_whole_text_and_only_grades_count() -> None:
    import hostile_graders

    with Verifier(custom=hostile_graders.same) as verifier:
        (verdict,) = verifier.verify([response("7")], [response("7")])
    assert verdict == Verdict(status=Status.OK, grade=1.0, verified=True, well_formatted=True, answer="7")
    returned = {"nan": "nan", "too-much": "1.5", "word": "str", "nothing": "NoneType"}
    with Verifier(custom="hostile_graders:by_name") as verifier:
        verdicts = verifier.verify([*returned, "half", "one", "numpy"], [""] * 7)
    assert [(v.status, v.grade, v.verified) for v in verdicts[4:]] == [
        (Status.WRONG, 0.5, False), (Status.OK, 1.0, True), (Status.OK, 1.0, True),
    ]  # fmt: skip
    for verdict, what in zip(verdicts, returned.values(), strict=False):
        assert (verdict.status, verdict.grade, verdict.verified) == (Status.ERROR, 0.0, False)
        assert f"the grader returned {what}, expected a bool or a number in [0, 1]" in verdict.detail


def test_verifier_refuses_graders_and_settings_it_cannot_use() -> None:
    graders = ("no_such_module:same", "hostile_graders:some", "hostile_graders:os", 7)
    for settings in (
        *({"custom": grader} for grader in (*graders, lambda text, gold: True)),
        {"format": "xml"}, {"memory_bytes": 1024}, {"num_workers": 0}, {"timeout_seconds": float("nan")},
    ):  # fmt: skip
        with raises(ConfigError):
            Verifier(**settings)


def test_verifier_refuses_a_grader_of_the_running_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("from gar.verify import Verifier\ndef mine(text, gold): return True\nVerifier(custom=mine)\n")
    ended = completed([sys.executable, str(script)])
    assert "ConfigError" in ended.stderr
    assert "defined in the running script or notebook" in ended.stderr


def test_verifier_import_failure_of_a_grader_in_the_workers_is_an_error(tmp_path: Path, monkeypatch) -> None:
    module = tmp_path / "vanishing_grader.py"
    module.write_text("def grade(text, gold): return True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Verifier(custom="vanishing_grader:grade") as verifier:
        module.write_text("raise ValueError('not today')\n")
        (verdict,) = verifier.verify(["a"], ["b"])
    assert verdict.status == Status.ERROR
    assert "the grader cannot be loaded in a worker: ValueError: not today" in verdict.detail


def test_verifier_finds_a_grader_in_the_current_folder(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "grader_here.py").write_text("def grade(text, gold): return text == gold\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    with Verifier(custom="grader_here:grade") as verifier:
        assert [verdict.verified for verdict in verifier.verify(["1", "2"], ["1", "1"])] == [True, False]


def test_import_brings_neither_torch_nor_sympy() -> None:
    program = "import sys, gar.verify; print({'torch', 'sympy', 'numpy', 'math_verify'} & set(sys.modules))"
    assert completed([sys.executable, "-c", program]).stdout.strip() == "set()"


@pytest.mark.data
def test_verify_agrees_with_the_labels_of_real_responses(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "gsm8k_model_solutions_300.jsonl").read_text().splitlines()]
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    solutions = [(row[model], row["ground_truth"].rpartition("A:")[2].strip()) for row in rows for model in models]
    with Verifier(format="none") as verifier:
        verdicts = verifier.verify([given["solution"] for given, _ in solutions], [gold for _, gold in solutions])
    assert [v.verified for v in verdicts] == [given["is_correct"] for given, _ in solutions]
    counts = Counter(verdict.status for verdict in verdicts)
    assert counts == {Status.OK: 472, Status.WRONG: 726, Status.UNPARSED: 2}


@pytest.mark.data
def test_verify_bare_gold_answers_are_right_and_what_they_contain_is_not(data_dir: Path) -> None:
    with (data_dir / "imo_answerbench_v2.csv").open(newline="") as file:
        golds = [row["Short Answer"] for row in csv.DictReader(file)]
    parts = [("78", "2^{78}"), ("78", "not 78"), ("3", r"$2\sqrt{3}$"), ("3", "(2, 3)"), ("2", r"$\frac{1}{2}$")]
    with Verifier(format="none", timeout_seconds=20.0) as verifier:
        assert all(verdict.verified for verdict in verifier.verify(golds, golds))
        assert not any(v.verified for v in verifier.verify([text for _, text in parts], [gold for gold, _ in parts]))


@pytest.mark.data
def test_verify_reads_solutions_without_a_marked_answer(data_dir: Path) -> None:
    lines = (data_dir / "gsm8k_test.jsonl").read_text().splitlines()
    rows = [json.loads(line)["answer"].split("\n####") for line in lines]
    with Verifier(format="none") as verifier:
        verdicts = verifier.verify([row[0] for row in rows], [row[1].strip() for row in rows])
    counts = Counter(verdict.status for verdict in verdicts)
    assert counts[Status.OK] > 1200, counts
    assert counts[Status.WRONG] < 10, counts  # in the others the last number is not the answer, or is hedged
