"""Every verdict in the table `cases.tsv`: what passes, what is wrong, and what is no statement about the answer."""

from gar.types import Status
from gar.verify import parse_response
from gar.verify.answers import Graded, grade_answer
from tests.verify.cases import Case, read_cases


def graded(case: Case) -> Graded:
    if case.format == "answer":
        return grade_answer(case.answer, case.gold, case.problem)
    answer = parse_response(case.answer, format=case.format).answer  # pyright: ignore[reportArgumentType]
    return grade_answer(answer, case.gold, case.problem) if answer else Graded(status=Status.UNPARSED, detail="none")


def test_every_case_of_the_table() -> None:
    cases = read_cases()
    assert len(cases) > 1000
    found = [(case, graded(case)) for case in cases]
    assert [(case, outcome) for case, outcome in found if outcome.status != case.verdict] == []
    for case, outcome in found:
        assert outcome.grade == (case.verdict == "ok"), case
        assert outcome.detail or case.verdict not in ("unparsed", "error"), case


def test_no_case_passes_for_another_number() -> None:
    for case in read_cases():
        if case.verdict == "ok" and case.gold.isdecimal() and case.format == "answer":
            other = Case(**{name: getattr(case, name) for name in Case.__slots__} | {"gold": f"{case.gold}1"})
            assert graded(other).status != Status.OK, case
