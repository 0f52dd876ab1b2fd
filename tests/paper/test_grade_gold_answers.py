"""Real gold answers against themselves and wrong variants of themselves: the counts that docs/grading.md has."""

from collections import Counter
from pathlib import Path

import pytest

from gar.types import Status
from gar.verify import Verifier
from paper.analyses import grade_gold_answers as script

pytestmark = pytest.mark.paper

UNREADABLE = {
    "algebra-031", "algebra-038", "geometry-078", "number_theory-006", "number_theory-014", "number_theory-029",
    "number_theory-036", "number_theory-048",
}  # fmt: skip
"""Gold answers of which math-verify makes nothing: sentences, cases, an underbrace, a set by its property."""


@pytest.mark.data
@pytest.mark.slow
def test_gold_answers_verify_and_their_wrong_variants_do_not(data_dir: Path) -> None:
    golds = script.read_golds(data_dir / "imo_answerbench_v2.csv")
    right, wrong = script.attempts(golds)
    assert len(golds) == 400
    assert min(Counter(attempt.problem for attempt in wrong).values()) >= 3
    few = {"one more in the list", "negated", "nothing but its last number"}  # the others take minutes
    wrong = [attempt for attempt in wrong if attempt.kind in few]
    with Verifier(format="boxed", timeout_seconds=20.0) as verifier:
        right_verdicts, wrong_verdicts = (script.grade(verifier, given) for given in (right, wrong))
    counts = Counter((a.kind, v.status) for a, v in zip(right, right_verdicts, strict=True))
    assert counts == {
        ("as it stands", Status.OK): 400,
        ("other notation", Status.OK): 398,
        ("other notation", Status.ERROR): 2,
        ("last number as a fraction", Status.OK): 377,
        ("last number as a fraction", Status.WRONG): 1,  # 3.5/2 for 1.75: a division that is left undone
        ("last number as a fraction", Status.ERROR): 8,
    }
    counts = Counter((a.kind, v.status) for a, v in zip(wrong, wrong_verdicts, strict=True))
    assert counts == {
        ("one more in the list", Status.WRONG): 38,
        ("one more in the list", Status.UNPARSED): 354,
        ("one more in the list", Status.ERROR): 8,
        ("negated", Status.WRONG): 320,
        ("negated", Status.UNPARSED): 70,
        ("negated", Status.ERROR): 8,
        ("nothing but its last number", Status.WRONG): 145,
        ("nothing but its last number", Status.UNPARSED): 1,
        ("nothing but its last number", Status.ERROR): 8,
    }
    for given, verdicts in ((right, right_verdicts), (wrong, wrong_verdicts)):
        errors = [attempt for attempt, v in zip(given, verdicts, strict=True) if v.status is Status.ERROR]
        assert {attempt.problem for attempt in errors} <= UNREADABLE
        assert {v.verified for v in verdicts if v.status is Status.ERROR} <= {False}


def test_wrong_forms_are_never_the_gold_answer() -> None:
    assert script.wrong_forms("$0$", "1/2") == {
        "plus 1": "0+1",
        "one more in the list": "0, 7919",
        "or another": r"0\text{ or }7919",
        "answer of the next problem": "1/2",
        "all integers up to 60": ", ".join(map(str, range(1, 61))),
        "last number + 1": "1",
        "first number + 10": "10",
    }
    assert "answer of the next problem" not in script.wrong_forms("$3$", "3 ")
    assert "nothing but its last number" not in script.wrong_forms("-7", "3")
