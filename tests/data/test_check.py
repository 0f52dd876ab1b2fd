import re

import pytest

from gar.data.check import check_problems
from gar.data.problem_set import load_problems
from gar.errors import DataError
from gar.settings import SourceSettings
from gar.types import Status
from gar.verify import Graded
from gar.verify.workers import WorkerPool


def ours(number: int, **changes: object) -> dict[str, object]:
    row = {"id": f"n-{number}", "prompt": f"{number} + 1 =", "answer": str(number + 1), "expert_solution": "a b"}
    return row | changes


def test_check_problems_reads_the_columns_that_are_named(write_rows):
    options = SourceSettings(prompt_field="task", expert_fields=("teacher",))
    report = check_problems(write_rows({"task": "1+1=", "answer": "2", "teacher": "so 2"}), options=options)
    assert (report.column_schema, report.num_problems, report.num_anchors, len(report.errors)) == ("gar", 1, 1, 0)


def test_check_problems_compares_stated_answers_and_guesses_none(write_rows):
    cases = [
        ("<think> 3 + 4 </think> <answer> x^2 </answer>", "x^2", "ok"),
        ("<think> the answer is 9 </think> <answer> 7 </answer>", "9", "wrong"),
        ("So $\\boxed{\\frac{1}{2}}$ of 8.", "0.5", "ok"),
        ("#### 7\nwhich is 9 - 2", "9", "wrong"),
        ("They sold 1,080 in 5 days.", "1080", "unparsed"),
        ("They sold 1080.\nThat took 5 days.", "1080", "wrong"),
    ]
    path = write_rows(*(ours(i, expert_solution=text, answer=gold) for i, (text, gold, _) in enumerate(cases)))
    report = check_problems(path, compare=True)
    for status, occurrences in report.comparisons.items():
        lines = [re.search(r":(\d+): ", example)[1] for example in occurrences]
        assert lines == [str(line) for line, (*_, outcome) in enumerate(cases, start=1) if outcome == status]
    assert report.num_agreeing == 2
    assert report.num_agreeing + sum(map(len, report.comparisons.values())) == len(cases)


def test_check_problems_names_gold_answers_that_cannot_be_parsed(write_rows):
    odd = r"f(x)=\begin{cases}1&x"
    golds = ["7", "Paris", r"\sqrt{2}", "B", odd, odd]
    solutions = ["#### 7", None, None, None, f"\\boxed{{{odd}}}", None]
    rows = [
        ours(i, answer=gold, expert_solution=text) for i, (gold, text) in enumerate(zip(golds, solutions, strict=True))
    ]
    report = check_problems(write_rows(*rows), compare=True)
    assert [re.search(r":(\d+): problem", each)[1] for each in report.unreadable] == ["5", "6"]
    assert repr(odd) in report.unreadable[0]
    assert report.verdict()[0] == "usable"
    odd_rows = [row for row in rows if row["answer"] == odd] + rows[:1]
    assert check_problems(write_rows(*odd_rows), compare=True).verdict()[0] == "not usable"


def test_check_problems_names_gold_answers_that_can_be_guessed(write_rows):
    golds = ["B", "(C)", r"\textbf{(D)}\ 12", "Yes", r"\text{no}", "True.", "7", "x", "yes, 7", "ab", "NO 3", "D" * 300]
    report = check_problems(write_rows(*(ours(i, answer=gold) for i, gold in enumerate(golds))))
    lines = [int(re.search(r":(\d+): problem", each)[1]) for each in report.guessable]
    assert lines == [1, 2, 3, 4, 5, 6]
    assert report.guessable[3].endswith("'Yes'")
    assert report.common_answer is None


def test_check_problems_names_an_answer_that_many_problems_share(write_rows):
    rows = [ours(i, answer="0" if i % 4 == 0 else str(i)) for i in range(60)]
    assert check_problems(write_rows(*rows)).common_answer == ("0", 0.25)
    assert check_problems(write_rows(*rows[:48])).common_answer is None
    assert check_problems(write_rows(*(ours(i) for i in range(60)))).common_answer is None


def test_check_problems_names_repeated_prompts(write_rows):
    (found,) = check_problems(write_rows(ours(1), ours(2), ours(3, prompt="1  + 1 ="))).repeated_prompts
    assert found.endswith(":3: problem 'n-3'")


def test_check_problems_names_gold_answers_that_are_the_last_of_different_boxes(write_rows):
    solutions = (r"\boxed{3}. Also \boxed{-5}.", r"\boxed{3} or \boxed{-5}", r"\boxed{3}. So \boxed{3}.", "none, 3")
    path = write_rows(*({"problem": f"{i}?", "solution": text} for i, text in enumerate(solutions)))
    (found,) = check_problems(path).several_boxes
    assert found.endswith("'rows-1': '3', '-5'")
    named = {"problem": "x?", "solution": r"\boxed{3}. Also \boxed{-5}.", "answer": "3"}  # nothing was taken from a box
    assert not check_problems(write_rows(named)).several_boxes


def test_check_problems_has_errors_exactly_where_load_problems_raises(write_rows):
    for rows in (
        [ours(1), ours(2)],
        [ours(1), ours(1)],
        [ours(1, answer="")],
        ["broken"],
        [{"promt": "a", "answer": "b"}],
        [ours(1), {"prompt": "no answer column"}],
    ):
        path = write_rows(*rows)
        try:
            load_problems(path)
            rejected = False
        except DataError:
            rejected = True
        assert bool(check_problems(path).errors) == rejected


def test_check_problems_compares_every_anchor_over_several_batches(write_rows, monkeypatch: pytest.MonkeyPatch):
    sent: list[tuple[str, str, str]] = []
    run = WorkerPool.run
    monkeypatch.setattr(WorkerPool, "run", lambda self, items: sent.extend(items) or run(self, items))
    monkeypatch.setattr("gar.data.check._BATCH", 10)
    path = write_rows(
        *(ours(i, answer=rf"{i}\sqrt{{2}}", expert_solution=[rf"A: {i}\sqrt2", r"A: \sqrt{3}"]) for i in range(14))
    )
    report = check_problems(path, compare=True)
    assert {status: len(found) for status, found in report.comparisons.items() if found} == {"wrong": 14}
    assert report.num_agreeing == 14
    assert report.comparisons["wrong"][0].startswith(f"{path}:1: problem 'n-0'")
    assert [answer for answer, _, _ in sent if answer != "0"] == [r"\sqrt{3}"] * 14  # the others need no worker


def test_check_problems_names_the_answer_of_a_solution_whose_process_was_killed(write_rows, monkeypatch):
    killed = Graded(status=Status.TIMEOUT, detail="killed after 5 s")
    monkeypatch.setattr(WorkerPool, "run", lambda self, items: [killed] * len(items))
    report = check_problems(write_rows(ours(1, answer=r"\sqrt{2}", expert_solution=r"\boxed{\sqrt{3}}")), compare=True)
    (found,) = report.comparisons[Status.TIMEOUT]
    assert found.endswith(f"ends in {chr(92) + 'sqrt{3}'!r}, gold is {chr(92) + 'sqrt{2}'!r} (killed after 5 s)")
