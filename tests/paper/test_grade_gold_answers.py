"""Real gold answers against themselves and their wrong variants: the counts in docs/grading.md."""

from collections import Counter
from pathlib import Path

import pytest

from gar.types import Status
from gar.verify import Verifier
from paper.analyses import grade_gold_answers as script

pytestmark = pytest.mark.paper

UNREADABLE = {
    "algebra-029", "algebra-031", "algebra-034", "algebra-038", "algebra-041", "algebra-097", "algebra-098",
    "algebra-099", "number_theory-014", "number_theory-036", "number_theory-037",
}  # fmt: skip
"""Gold answers that the grammar cannot read: sentences around formulas, an underbrace."""


@pytest.mark.data
@pytest.mark.slow
def test_gold_answers_verify_and_their_wrong_variants_do_not(data_dir: Path) -> None:
    golds = script.read_golds(data_dir / "imo_answerbench_v2.csv")
    right, wrong = script.attempts(golds)
    assert len(golds) == 400
    assert min(Counter(attempt.problem for attempt in wrong).values()) >= 3
    with Verifier(format="boxed", timeout_seconds=20.0) as verifier:
        right_verdicts, wrong_verdicts = (script.grade(verifier, given) for given in (right, wrong))
    counts = Counter((a.kind, v.status) for a, v in zip(right, right_verdicts, strict=True))
    assert (counts["as it stands", Status.OK], counts["other notation", Status.OK]) == (400, 398)
    assert counts["last number as a fraction", Status.OK] == 364
    assert not any(verdict.verified for verdict in wrong_verdicts)
    for given, verdicts in ((right, right_verdicts), (wrong, wrong_verdicts)):
        errors = [attempt for attempt, v in zip(given, verdicts, strict=True) if v.status is Status.ERROR]
        assert {attempt.problem for attempt in errors} <= UNREADABLE
        assert {v.verified for v in verdicts if v.status is Status.ERROR} <= {False}
