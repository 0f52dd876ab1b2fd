"""Which responses are scored, against the formulas of the rewards: the two must never drift apart."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.methods import METHODS, Method, ScoredBatch, eligible_responses
from gar.settings import RewardSettings
from gar.shaping import responses_to_score

WITH_BONUS = [name for name, m in METHODS.items() if m.alignment is not None and not m.scores_all]


@dataclass(frozen=True)
class Case:
    method: Method
    settings: RewardSettings
    verified: Tensor
    well_formatted: Tensor
    can_score: Tensor
    group_index: Tensor
    alignment: Tensor

    def facts(self, alignment: Tensor, scored: Tensor) -> ScoredBatch:
        return ScoredBatch(
            verified=self.verified, well_formatted=self.well_formatted, group_index=self.group_index,
            alignment=alignment, scored=scored,
        )  # fmt: skip

    def to_score(self) -> Tensor:
        unknown = torch.full_like(self.alignment, torch.nan)
        return responses_to_score(self.method, self.settings, self.facts(unknown, unknown.isfinite()), self.can_score)

    def bonuses(self, alignment: Tensor, scored: Tensor) -> Tensor:
        return self.method.shape(self.facts(alignment, scored), self.settings).bonuses


@st.composite
def cases(draw: Any, **settings: Any) -> Case:
    responses = draw(
        st.lists(
            st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 3), st.floats(-1, 1)),
            min_size=1, max_size=12,
        )
    )  # fmt: skip
    verified, well_formatted, can_score, groups, alignment = (
        torch.tensor(column) for column in zip(*responses, strict=True)
    )
    chosen = RewardSettings(
        beta=settings.get("beta", draw(st.sampled_from([0.0, 0.5, 2.0]))),
        centre=draw(st.booleans()),
        clip=draw(st.booleans()),
        singleton=draw(st.sampled_from(["zero", "absolute"])),
        format_gate=draw(st.sampled_from(["algorithm", "equation"])),
    )
    return Case(
        METHODS[draw(st.sampled_from(WITH_BONUS))], chosen, verified, well_formatted, can_score, groups,
        alignment.double(),
    )  # fmt: skip


@given(cases())
def test_a_response_that_is_not_scored_would_have_no_bonus_whatever_its_alignment(case: Case):
    everything = case.bonuses(case.alignment, case.can_score)
    to_score = case.to_score()
    assert everything[~to_score].tolist() == [0.0] * int((~to_score).sum())


@given(cases())
def test_scoring_fewer_responses_changes_no_bonus(case: Case):
    everything = case.bonuses(case.alignment, case.can_score)
    assert torch.equal(case.bonuses(case.alignment, case.to_score()), everything)


@given(cases(beta=0.5))
def test_a_response_that_is_scored_may_earn_a_bonus(case: Case):
    """With an alignment of 1 beside others of 0; so nothing is scored in vain."""
    to_score = case.to_score()
    for i in to_score.nonzero()[:, 0].tolist():
        alignment = torch.zeros_like(case.alignment)
        alignment[i] = 1.0
        assert case.bonuses(alignment, case.can_score)[i] > 0


def one_group(method: str, verified: list[bool], can_score: list[bool], **settings: Any) -> list[bool]:
    unknown = torch.full((len(verified),), torch.nan, dtype=torch.float64)
    facts = ScoredBatch(
        verified=torch.tensor(verified), well_formatted=torch.ones(len(verified), dtype=torch.bool),
        group_index=torch.zeros(len(verified), dtype=torch.long), alignment=unknown, scored=unknown.isfinite(),
    )  # fmt: skip
    assert eligible_responses(facts, RewardSettings()).tolist() == verified
    return responses_to_score(METHODS[method], RewardSettings(**settings), facts, torch.tensor(can_score)).tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"singleton": "absolute"}, True),
        ({"centre": False}, True),
        ({"centre": False, "clip": False}, True),
    ],
)
def test_a_lone_eligible_response_is_scored_where_its_own_cosine_counts(settings: dict, expected: bool):
    assert one_group("gar-grpo", [True, False, False], [True, True, True], **settings) == [expected, False, False]


def test_what_a_method_declares_decides_who_is_scored():
    verified, can_score = [True, True, False, True], [True, True, True, False]
    assert one_group("grpo", verified, can_score) == [False] * 4
    assert one_group("grad2reward", verified, can_score) == [False] * 4
    assert one_group("gar-grpo", verified, can_score) == [True, True, False, False]
    assert one_group("alignment-only", verified, can_score) == can_score
    assert one_group("g2rl", verified, can_score) == can_score
