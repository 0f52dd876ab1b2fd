"""The answers that no rule was written for, and switching rules off."""

import re

from paper.analyses.grading_ablation import passes, row, rules, switched_off
from paper.analyses.unseen_answers import by_hand


def test_unseen_answers_are_read_and_wrong_ones_do_not_pass() -> None:
    pairs = list(by_hand())
    read = passes(pairs)
    right = [passed for pair, passed in zip(pairs, read, strict=True) if pair.right]
    assert sum(map(bool, right)) >= 0.95 * len(right)
    wrong = [pair.response for pair, passed in zip(pairs, read, strict=True) if passed and not pair.right]
    assert wrong == []


def test_switched_off_rule_changes_verdicts_and_comes_back() -> None:
    pairs = [pair for pair in by_hand() if re.search(r"boxed *7$|\\boxed\{7\}\^2", pair.response)]
    before = passes(pairs)
    found = dict(rules())
    with switched_off(found["boxes._BARE_BOX"]):
        assert row(pairs, before, passes(pairs))[:2] == [1, 1]
    assert passes(pairs) == before
