"""The expectation itself, and the page with the results."""

from typing import Any

import pytest
import torch

from paper.analyses import conformance_table as script
from tests.conformance.expectation import (
    RULES,
    TOLERANCE,
    divisors,
    expected_advantages,
    expected_rewards,
    read_results,
    record,
)
from tests.conformance.groups import GROUP_SIZE, GROUPS, make_rollouts


def test_expected_rewards_are_what_each_kind_must_get():
    by_group = dict(zip(GROUPS, expected_rewards().view(-1, GROUP_SIZE), strict=True))
    assert by_group["all wrong"].tolist() == [0, 0, 0, 0]
    assert by_group["one right"].tolist() == [0, 1, 0, 0]  # nothing to compare it with
    assert by_group["missing anchor"].tolist() == [1, 1, 1, 0]
    rescued = by_group["all right"]
    assert float(rescued.min()) == 1.0
    assert float(rescued.std()) > 0.05  # a bonus where plain GRPO has a zero-std group
    formatted, second, unopened, wrong = by_group["bad format"].tolist()
    assert unopened == -0.6  # right, but the penalty alone
    assert sorted([formatted, second])[0] == 1.0 < sorted([formatted, second])[1]
    first, second, unthinking, _ = by_group["a response without signal"].tolist()
    assert unthinking == 1.0
    assert max(first, second) > 1.0 == min(first, second)
    assert wrong == 0.0


def test_saved_expectation_is_current():
    expected: dict[str, Any] = {
        "tolerance": TOLERANCE,
        "rules": RULES,
        "responses": [[rollout.group, rollout.kind] for rollout in make_rollouts()],
        "rewards": expected_rewards().tolist(),
        "advantages": {name: expected_advantages(name).tolist() for name in RULES},
        "divisors": {name: divisors(name).tolist() for name in RULES},
    }
    record("expectation", expected)
    saved = read_results("expectation")
    for name in ("tolerance", "rules", "responses"):
        assert saved[name] == expected[name]
    torch.testing.assert_close(torch.tensor(saved["rewards"]), torch.tensor(expected["rewards"]), rtol=0, atol=1e-6)
    for name in RULES:
        assert saved["advantages"][name] == pytest.approx(expected["advantages"][name], abs=1e-4)
        assert saved["divisors"][name] == pytest.approx(expected["divisors"][name], abs=1e-6)


def test_page_shows_the_results():
    assert script.PAGE.read_text() == script.page(), "run python -m paper.analyses.conformance_table"
