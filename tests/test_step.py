"""Which responses are scored, against the formulas of the rewards: the two must never drift apart. Then the path."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Barrier
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import group_advantages, reinforce_plus_plus_advantages
from gar.errors import ConfigError
from gar.integrations.slime.settings import SLIME
from gar.integrations.trl.flags import TRL
from gar.integrations.verl.settings import VERL
from gar.methods import METHODS, Engine, Method, ScoredBatch, eligible_responses
from gar.scoring.scorer import SCORER
from gar.sequences import TokenSequence
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings
from gar.step import ResponseFacts, Row, Step, StepRanks, plan_shaping, responses_to_score

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
            alignment=alignment.where(scored, torch.nan),
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
        bonus_weight=settings.get("bonus_weight", draw(st.sampled_from([0.0, 0.5, 2.0]))),
        center=draw(st.booleans()),
        clip=draw(st.booleans()),
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


@given(cases(bonus_weight=0.5))
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
        group_index=torch.zeros(len(verified), dtype=torch.long), alignment=unknown,
    )  # fmt: skip
    assert eligible_responses(facts, RewardSettings()).tolist() == verified
    return responses_to_score(METHODS[method], RewardSettings(**settings), facts, torch.tensor(can_score)).tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"center": False}, True),
        ({"center": False, "clip": False}, True),
    ],
)
def test_a_lone_eligible_response_is_scored_where_its_own_cosine_counts(settings: dict, expected: bool):
    assert one_group("gar-grpo", [True, False, False], [True, True, True], **settings) == [expected, False, False]


def test_what_a_method_declares_decides_who_is_scored():
    verified, can_score = [True, True, False, True], [True, True, True, False]
    assert one_group("grpo", verified, can_score) == [False] * 4
    assert one_group("gar-grpo", verified, can_score) == [True, True, False, False]
    assert one_group("alignment-only", verified, can_score) == can_score
    assert one_group("g2rl", verified, can_score) == can_score


# Engines, settings in force, and the path from rows to advantages.

ALL = list(METHODS)
PLAIN = [
    "grpo",
    "reinforce-plus-plus",
    "reinforce-plus-plus-baseline",
    "gar-grpo",
    "gar-reinforce-plus-plus",
    "hidden-cosine",
]
RUNS = [
    (TRL, ALL),
    (SCORER, ["grpo", "gar-grpo", "g2rl", "hidden-cosine", "text-similarity", "length", "alignment-only"]),
    (SLIME, [*PLAIN, "alignment-only"]),
    (VERL, [*PLAIN, "alignment-only"]),
]


@pytest.mark.parametrize(("engine", "runs"), RUNS, ids=["TRL", "GARScorer", "slime", "verl"])
def test_an_engine_runs_what_it_can_and_refuses_the_rest_with_a_reason(engine: Engine, runs: list[str]):
    """docs/which-engine.md lists the same."""
    assert sorted(engine.methods()) == sorted(runs)
    for name in ALL:
        if name in runs:
            assert plan_shaping(engine, name).method is METHODS[name]
        else:
            with pytest.raises(
                ConfigError, match=rf"^method is {name}, expected one that {engine.name} runs \("
            ) as caught:
                plan_shaping(engine, name)
            assert f"({', '.join(engine.methods())}): the" in str(caught.value)


@pytest.mark.parametrize(("engine", "ddof", "eps"), [(TRL, 1, 1e-4), (SCORER, 0, 1e-6), (SLIME, 1, 1e-6)])
def test_unset_ddof_and_eps_are_the_engines(engine: Engine, ddof: int, eps: float):
    rewards, groups = torch.tensor([1.0, 0.0, 0.5, 1.0, 1.0]).double(), torch.tensor([0, 0, 0, 1, 1])
    found = plan_shaping(engine, "grpo").advantages(rewards, groups)
    assert torch.equal(found, group_advantages(rewards, groups, scale="std", ddof=ddof, eps=eps))
    chosen = AdvantageSettings(ddof=1 - ddof, eps=0.5, min_std=0.3)
    found = plan_shaping(engine, "grpo", {"advantage": chosen}).advantages(rewards, groups)
    expected = group_advantages(rewards, groups, scale="std", ddof=1 - ddof, eps=0.5, min_std=0.3)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("estimator", ["reinforce-plus-plus", "reinforce-plus-plus-baseline"])
def test_whitening_weighs_responses_by_their_tokens(estimator: str):
    rewards, groups, counts = torch.tensor([1.0, 0.0, 0.5]).double(), torch.tensor([0, 0, 1]), torch.tensor([3, 1, 9])
    shaping = plan_shaping(TRL, estimator)
    expected = reinforce_plus_plus_advantages(
        rewards, counts, groups, baseline=estimator == "reinforce-plus-plus-baseline", ddof=1, eps=1e-8
    )
    assert torch.equal(shaping.advantages(rewards, groups, token_counts=counts), expected)


def test_whitening_without_token_counts_is_refused():
    shaping = plan_shaping(TRL, "reinforce-plus-plus")
    with pytest.raises(
        ValueError, match="token_counts is None, expected one number per response: reinforce-plus-plus weighs"
    ):
        shaping.advantages(torch.tensor([1.0, 0.0]).double(), torch.tensor([0, 0]))


def row(group: int, *, right: bool = True, anchors: int = 1, tokens: int = 2) -> Row:
    facts = ResponseFacts(
        group_index=group, status="ok" if right else "wrong", verified=right, well_formatted=True,
        num_anchors=anchors, num_scored_tokens=tokens,
    )  # fmt: skip
    sequence = TokenSequence(context_ids=[0], ids=[1, 2], positions=range(tokens))
    anchor = TokenSequence(context_ids=[0], ids=[group, 3], positions=[0, 1])
    return Row(facts=facts, sequence=sequence, anchors=[anchor] * anchors)


def test_a_step_asks_for_each_needed_sequence_once_and_puts_the_vectors_back():
    rows = [row(7), row(3, right=False), row(5), row(7), row(5), row(5, tokens=0), row(9), row(3)]
    step = Step(plan_shaping(SCORER, "gar-grpo", {"signal": SignalSettings(anchor_keep_fraction=0.7)}), rows)
    assert step.members == [0, 2, 3, 4]  # a lone right one, one without tokens, and wrong ones need none
    assert [anchor.ids[0] for anchor in step.anchors] == [7, 5]
    assert step.keep_fractions == [1.0] * 4 + [0.7] * 2
    means = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    shaped = step.finish(means)
    for place, member, anchor in ((0, 0, 4), (2, 1, 5), (3, 2, 4), (4, 3, 5)):
        cosine = torch.nn.functional.cosine_similarity(means[member].double(), means[anchor].double(), dim=0)
        assert float(shaped.batch.alignment[place]) == pytest.approx(float(cosine), abs=1e-6)  # float32 unit rows
    assert shaped.batch.scored.nonzero()[:, 0].tolist() == step.members
    assert shaped.metrics()["gar/no_signal_fraction"] == pytest.approx(1 / 8)
    best = max((0, 3), key=lambda place: float(shaped.batch.alignment[place]))
    assert shaped.shaped.bonuses[[0, 3]].nonzero()[:, 0].tolist() == [[0, 3].index(best)]


def test_a_step_without_needed_responses_asks_for_nothing():
    step = Step(plan_shaping(SCORER, "gar-grpo"), [row(0, right=False), row(0)])
    assert step.sequences == []
    for means in (None, torch.zeros(0, 8)):
        shaped = step.finish(means)
        assert not bool(shaped.batch.scored.any())
        assert shaped.rewards.tolist() == [0.0, 1.0]


def test_vectors_reach_only_a_method_that_compares_them():
    rows = [row(0, anchors=0), row(0, anchors=0)]
    for method, expected in (("g2rl", True), ("gar-grpo", False)):
        step = Step(plan_shaping(SCORER, method), rows)
        assert bool(step.needed.all()) == expected  # no anchor: nothing to compare with, but with each other
        shaped = step.finish(torch.tensor([[1.0, 0.0], [0.6, 0.8]])[: len(step.sequences)])
        assert (shaped.batch.vectors is not None) == expected


def test_a_vector_that_is_zero_has_no_alignment_and_leaves_the_others_uncompared():
    step = Step(plan_shaping(SCORER, "gar-grpo"), [row(0), row(0), row(0)])
    shaped = step.finish(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))
    assert shaped.batch.scored.tolist() == [False, True, False]
    assert shaped.rewards.tolist() == [1.0, 1.0, 1.0]  # one scored member of three: no bonus


class Threads(StepRanks):
    """Threads of this process."""

    def __init__(self, rank: int, count: int, shared: dict[str, Any]):
        self._rank, self._count, self._shared, self._round = rank, count, shared, 0

    def _exchange(self, value: Any) -> list[Any]:
        self._round += 1
        values = self._shared.setdefault(self._round, [None] * self._count)
        values[self._rank] = value
        self._shared["barrier"].wait()
        return values

    def gather(self, items: list[Any]) -> tuple[list[Any], int]:
        gathered = self._exchange(items)
        return [item for items in gathered for item in items], sum(map(len, gathered[: self._rank]))

    def sum(self, values: Tensor) -> Tensor:
        return torch.stack(self._exchange(values)).sum(0)


@pytest.mark.parametrize("cuts", [[4], [1, 5], [0, 3], [2, 2, 6]])
@pytest.mark.parametrize("method", ["gar-grpo", "alignment-only", "anchor-shuffled", "anchor-random", "g2rl", "length"])
def test_ranks_of_any_size_agree_with_one_process_and_form_each_anchor_once(cuts: list[int], method: str):
    groups = [(7, 2, True), (5, 1, True), (7, 2, True), (5, 1, False), (5, 1, True), (9, 0, True), (7, 2, True)]
    rows = [
        replace(made, sequence=replace(made.sequence, ids=[10 + place, 1]))
        for place, made in enumerate(row(group, anchors=anchors, right=right) for group, anchors, right in groups)
    ]
    shaping = plan_shaping(TRL, method)

    def mean(sequence: TokenSequence) -> Tensor:
        return torch.randn(8, generator=torch.Generator().manual_seed(sequence.ids[0]))

    def finish(part: list[Row], ranks: StepRanks) -> tuple[Any, int]:
        step = Step(shaping, part, ranks=ranks, pieces=lambda ids: [str(i) for i in ids])
        vectors = torch.stack([torch.zeros(8), *map(mean, step.sequences)])[1:]
        return step.finish(vectors if shaping.method.reads_vectors else None), len(step.anchors)

    whole, num_anchors = finish(rows, StepRanks())
    edges = [0, *cuts, len(rows)]
    parts = [rows[a:b] for a, b in pairwise(edges)]
    shared: dict[Any, Any] = {"barrier": Barrier(len(parts))}
    with ThreadPoolExecutor(len(parts)) as pool:
        jobs = [pool.submit(finish, part, Threads(i, len(parts), shared)) for i, part in enumerate(parts)]
        found = [job.result(timeout=60) for job in jobs]
    assert sum(count for _, count in found) == num_anchors
    for shaped, _ in found:
        assert torch.equal(shaped.rewards, whole.rewards)
        assert torch.equal(shaped.batch.alignment.nan_to_num(2.0), whole.batch.alignment.nan_to_num(2.0))
        assert shaped.metrics() == pytest.approx(whole.metrics(), nan_ok=True)
