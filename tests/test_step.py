"""Which responses are scored, against the formulas of the rewards, and the path from rows to rewards."""

import math
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from gar.integrations.trl.arguments import TRL
from gar.integrations.verl.settings import VERL
from gar.methods import METHODS, Engine, Method, ScoredBatch, ShapedRewards, outcome_rewards
from gar.metrics import BONUS
from gar.response import Anchors, Response, ScoringFault, SignalStatus, TokenSequence
from gar.scoring.scorer import SCORER
from gar.settings import AdvantageSettings, RewardSettings
from gar.step import Step, StepRanks, plan_shaping
from gar.types import Status, Verdict
from tests.docs.pages import DOCS
from tests.support.errors import raises
from tests.support.processes import SECONDS

WITH_BONUS = [name for name, m in METHODS.items() if m.alignment is not None and not m.scores_all]


def needed(method: str, responses: list[tuple[bool, bool, bool, int]], **reward: Any) -> Tensor:
    """Who needs a vector among responses given as (verified, well formatted, has scored tokens, group)."""
    rows = [
        Response(
            group_index=group, anchors=Anchors.unread(1), sequence=TokenSequence(positions=[0] * can_score),
            verdict=Verdict(status=Status.OK, grade=1.0, verified=verified, well_formatted=well_formatted),
        )
        for verified, well_formatted, can_score, group in responses
    ]  # fmt: skip
    return Step(plan_shaping(TRL, method, {"reward": RewardSettings(**reward)}, quiet=True), rows).needed


@given(
    responses=st.lists(st.tuples(*[st.booleans()] * 3, st.integers(0, 3), st.floats(-1, 1)), min_size=1, max_size=12),
    method=st.sampled_from(WITH_BONUS),
    weight=st.sampled_from([0.0, 0.5, 2.0]),
    center=st.booleans(),
    clip=st.booleans(),
    gate=st.sampled_from(["algorithm", "equation"]),
)
def test_those_that_may_earn_a_bonus_are_needed_and_no_others(responses, method, weight, center, clip, gate):
    reward = {"bonus_weight": weight, "center": center, "clip": clip, "format_gate": gate}
    verified, well_formatted, can_score, groups, alignment = map(torch.tensor, zip(*responses, strict=True))

    def bonuses(alignment: Tensor, scored: Tensor) -> Tensor:
        batch = ScoredBatch(verified=verified, well_formatted=well_formatted, group_index=groups,
                            num_tokens=torch.ones_like(groups),
                            alignment=alignment.double().where(scored, torch.nan))  # fmt: skip
        return METHODS[method].shape(batch, RewardSettings(**reward)).bonuses

    found = needed(method, [row[:4] for row in responses], **reward)
    everything = bonuses(alignment, can_score)
    assert not bool(everything[~found].any())  # whatever its alignment
    assert torch.equal(bonuses(alignment, found), everything)  # scoring fewer changes no bonus
    for i in found.nonzero()[:, 0].tolist() if weight else ():  # nothing is scored in vain
        one = torch.zeros_like(alignment)
        one[i] = 1.0
        assert bonuses(one, can_score)[i] > 0


def test_what_a_method_declares_decides_who_is_scored():
    responses = [(True, True, True, 0), (True, True, True, 0), (False, True, True, 0), (True, True, False, 0)]
    can_score = [True, True, True, False]
    for method, expected in (
        ("grpo", [False] * 4), ("gar-grpo", [True, True, False, False]), ("alignment-only", can_score),
        ("g2rl", can_score),
    ):  # fmt: skip
        assert needed(method, responses).tolist() == expected
    for settings, expected in (({}, False), ({"center": False}, True), ({"center": False, "clip": False}, True)):
        assert needed("gar-grpo", responses[1:3], **settings).tolist() == [expected, False]


# Engines, settings in force, and the path from rows to advantages.

PLAIN = {
    "grpo", "reinforce-plus-plus", "reinforce-plus-plus-baseline", "gar-grpo", "gar-reinforce-plus-plus",
    "hidden-cosine", "anchor-shuffled", "alignment-only",
}  # fmt: skip
SCORED = {"grpo", "gar-grpo", "g2rl", "hidden-cosine", "text-similarity", "length", "alignment-only"}


def test_an_engine_runs_what_it_can_and_rejects_the_rest():
    """docs/which-engine.md lists the same for verl and slime."""
    (row,) = re.findall(r"^\| methods \|.*$", (DOCS / "which-engine.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(.+?)`", row)) == PLAIN
    for engine, runs in ((TRL, set(METHODS)), (SCORER, SCORED), (SLIME, PLAIN), (VERL, PLAIN)):
        assert set(engine.methods()) == runs
        for name in runs:
            assert plan_shaping(engine, name).method is METHODS[name]
        for name in METHODS.keys() - runs:
            with raises(ConfigError, "method"):
                plan_shaping(engine, name)


@pytest.mark.parametrize(("engine", "ddof", "eps"), [(TRL, 1, 1e-4), (SCORER, 0, 1e-6), (SLIME, 1, 1e-6)])
def test_unset_ddof_and_eps_are_the_engines(engine: Engine, ddof: int, eps: float):
    rewards, groups = torch.tensor([1.0, 0.0, 0.5, 1.0, 1.0]).double(), torch.tensor([0, 0, 0, 1, 1])
    found = plan_shaping(engine, "grpo").advantages(rewards, groups)
    assert torch.equal(found, group_advantages(rewards, groups, scale="std", ddof=ddof, eps=eps))
    chosen = AdvantageSettings(ddof=1 - ddof, eps=0.5, min_std=0.3)
    found = plan_shaping(engine, "grpo", {"advantage": chosen}).advantages(rewards, groups)
    expected = group_advantages(rewards, groups, scale="std", ddof=1 - ddof, eps=0.5, min_std=0.3)
    assert torch.equal(found, expected)
    if engine is TRL:
        counts = torch.tensor([3, 1, 9, 2, 2])
        for baseline, name in ((False, "reinforce-plus-plus"), (True, "reinforce-plus-plus-baseline")):
            found = plan_shaping(engine, name).advantages(rewards, groups, token_counts=counts)
            options = {"baseline": baseline, "ddof": 1, "eps": 1e-8}
            assert torch.equal(found, reinforce_plus_plus_advantages(rewards, counts, groups, **options))


def row(group: int, *, right: bool = True, anchors: int = 1, tokens: int = 2) -> Response:
    status = Status.OK if right else Status.WRONG
    return Response(
        group_index=group,
        sequence=TokenSequence(context_ids=[0], ids=[1, 2], positions=range(tokens)),
        anchors=Anchors((TokenSequence(context_ids=[0], ids=[group, 3], positions=[0, 1]),) * anchors),
        verdict=Verdict(status=status, grade=float(right), verified=right, well_formatted=True),
    )


def test_a_step_asks_for_each_needed_sequence_once_and_puts_the_vectors_back():
    rows = [row(7), row(3, right=False), row(5), row(7), row(5), row(5, tokens=0), row(9), row(3)]
    step = Step(plan_shaping(SCORER, "gar-grpo"), rows)
    assert step.members == [0, 2, 3, 4]  # a lone right one, one without tokens, and wrong ones need none
    assert [anchor.ids[0] for anchor in step.anchors] == [7, 5]
    means = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    shaped = step.finish(means[:4], means[4:])
    for place, member, anchor in ((0, 0, 4), (2, 1, 5), (3, 2, 4), (4, 3, 5)):
        cosine = torch.nn.functional.cosine_similarity(means[member].double(), means[anchor].double(), dim=0)
        assert float(step.batch.alignment[place]) == pytest.approx(float(cosine), abs=1e-6)  # float32 unit rows
    assert step.batch.scored.nonzero()[:, 0].tolist() == step.members
    assert step.metrics()["gar/no_signal_fraction"] == pytest.approx(1 / 8)
    best = max((0, 3), key=lambda place: float(step.batch.alignment[place]))
    assert shaped.bonuses[[0, 3]].nonzero()[:, 0].tolist() == [[0, 3].index(best)]


def test_a_step_without_needed_responses_asks_for_nothing():
    for means in (None, torch.zeros(0, 8)):
        step = Step(plan_shaping(SCORER, "gar-grpo"), [row(0, right=False), row(0)])
        assert step.sequences == step.anchors == []
        assert step.finish(means, means).rewards.tolist() == [0.0, 1.0]
        assert not bool(step.batch.scored.any())
    rows = [row(0, anchors=0), row(0, anchors=0)]
    for method, compares in (("g2rl", True), ("gar-grpo", False)):
        step = Step(plan_shaping(SCORER, method), rows)
        assert bool(step.needed.all()) == compares  # no anchor: nothing to compare with, but with each other
        step.finish(torch.tensor([[1.0, 0.0], [0.6, 0.8]])[: len(step.sequences)])
        assert (step.batch.vectors is not None) == compares


def test_the_mean_bonus_is_of_scored_responses_or_of_all_without_an_alignment():
    def shape(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
        parts = outcome_rewards(batch, settings)
        bonuses = parts.outcomes / batch.num_tokens
        return replace(parts, rewards=parts.rewards + bonuses, bonuses=bonuses)

    def mean_bonus(method: str | Method) -> float:
        step = Step(plan_shaping(SCORER, method), [row(0), row(0, right=False)])
        step.finish()
        return step.metrics()[BONUS]

    assert mean_bonus(Method(name="short", summary="short answers", shape=shape)) == 0.25
    assert math.isnan(mean_bonus("grpo"))  # it has no bonus
    assert math.isnan(mean_bonus("gar-grpo"))  # nothing is scored


def test_a_vector_that_is_zero_has_no_alignment_and_leaves_the_others_uncompared():
    step = Step(plan_shaping(SCORER, "gar-grpo"), [row(0), row(0), row(0)])
    shaped = step.finish(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    assert step.batch.scored.tolist() == [False, True, False]
    assert shaped.rewards.tolist() == [1.0, 1.0, 1.0]  # one scored member of three: no bonus


def test_the_facts_that_ranks_exchange_hold_neither_tokens_nor_texts():
    verdict = Verdict(status=Status.OK, grade=1.0, verified=True, well_formatted=True, answer="7", detail="so")
    fault = ScoringFault(SignalStatus.TOO_LONG, "9 tokens")
    whole = replace(row(3), text="= 7", verdict=verdict, fault=fault, anchors=Anchors(row(3).anchors.usable, (fault,)))
    facts = whole.facts()
    assert (facts.text, facts.verdict.answer, facts.verdict.detail) == ("", None, "")
    assert (facts.num_tokens, facts.ids) == (2, range(2))  # positions in place of ids
    assert [fault.text for fault in (facts.fault, *facts.anchors.faults) if fault] == ["", ""]
    assert (facts.group_index, facts.num_scored_tokens, len(facts.anchors.usable)) == (3, 0, 1)
    assert len(pickle.dumps([facts] * 100)) < 5_000


class Threads(StepRanks):
    """Threads of this process."""

    def __init__(self, rank: int, count: int, shared: dict[str, Any]):
        self._rank, self._count, self._shared, self._round = rank, count, shared, 0

    def _exchange(self, value: Any) -> list[Any]:
        self._round += 1
        values = self._shared.setdefault(self._round, [None] * self._count)
        values[self._rank] = value
        self._shared["barrier"].wait(SECONDS)
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

    def finish(part: list[Response], ranks: StepRanks) -> tuple[Step, int]:
        step = Step(shaping, part, ranks=ranks, pieces=lambda ids: [str(i) for i in ids])
        parts = (torch.stack([torch.zeros(8), *map(mean, each)])[1:] for each in (step.sequences, step.anchors))
        step.finish(*(parts if shaping.method.reads_vectors else ()))
        return step, len(step.anchors)

    whole, num_anchors = finish(rows, StepRanks())
    edges = [0, *cuts, len(rows)]
    parts = [rows[a:b] for a, b in pairwise(edges)]
    barrier = Barrier(len(parts), timeout=SECONDS)  # a thread that fails must not leave the others waiting
    shared: dict[Any, Any] = {"barrier": barrier}
    with ThreadPoolExecutor(len(parts)) as pool:
        jobs = [pool.submit(finish, part, Threads(i, len(parts), shared)) for i, part in enumerate(parts)]
        found = [job.result(timeout=SECONDS) for job in jobs]
    assert sum(count for _, count in found) == num_anchors
    for step, _ in found:
        assert torch.equal(step.shaped.rewards, whole.shaped.rewards)
        assert torch.equal(step.batch.alignment.nan_to_num(2.0), whole.batch.alignment.nan_to_num(2.0))
        assert step.metrics() == pytest.approx(whole.metrics(), nan_ok=True)
