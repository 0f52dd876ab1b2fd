"""The methods on six canonical groups with rewards worked out by hand."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.errors import ConfigError
from gar.methods import (
    METHODS,
    Method,
    ScoredBatch,
    ShapedRewards,
    eligible_responses,
    find_method,
    outcome_rewards,
    register,
)
from gar.methods.gar import length_similarity, random_anchor_vectors
from gar.response import TokenSequence
from gar.settings import AlignedMethod, OutcomeMethod, RewardSettings, Settings
from tests.methods.conftest import batch_of
from tests.support.errors import raises

NAN = float("nan")


# One group each: of each response (verified, well formatted, alignment), then what GAR-GRPO and what GRPO pays.
# correct_reward 1, bonus_weight 0.5, format_penalty -0.6.
CASES: dict[str, tuple[list[tuple[bool, bool, float]], list[float], list[float]]] = {
    "all wrong": ([(False, True, 0.9), (False, True, 0.1), (False, True, NAN)], [0, 0, 0], [0, 0, 0]),
    # centered on itself: no bonus
    "one right": ([(True, True, 0.8), (False, True, 0.9), (False, True, NAN)], [1, 0, 0], [1, 0, 0]),
    # mean 0.5: centered 0.25, 0, -0.25
    "all right": ([(True, True, 0.75), (True, True, 0.5), (True, True, 0.25)], [1.125, 1, 1], [1, 1, 1]),
    # a right answer in bad format gets the penalty alone, and is not in the mean (0.5)
    "bad format": (
        [(True, True, 0.75), (True, True, 0.25), (True, False, 1.0), (False, False, NAN)],
        [1.125, 1, -0.6, -0.6], [1, 1, -0.6, -0.6],
    ),
    "missing anchor": ([(True, True, NAN), (True, True, NAN), (False, True, NAN)], [1, 1, 0], [1, 1, 0]),
    # the third is right but has no vector: base, and not in the mean (0.5)
    "no vector": ([(True, True, 0.75), (True, True, 0.25), (True, True, NAN)], [1.125, 1, 1], [1, 1, 1]),
}  # fmt: skip
OUTCOME = ("grpo", "dr-grpo", "dapo", "reinforce-plus-plus", "reinforce-plus-plus-baseline", "maspo")
SHAPED_AS_GAR = (
    "gar-grpo", "gar-reinforce-plus-plus", "anchor-shuffled", "anchor-random", "hidden-cosine", "text-similarity",
    "length",
)  # fmt: skip


def shaped(method: str, batch: ScoredBatch, **settings) -> ShapedRewards:
    return METHODS[method].shape(batch, RewardSettings(**settings))


@pytest.mark.parametrize("name", CASES)
def test_shape_pays_the_canonical_groups_as_worked_out_by_hand(name):
    responses, gar, grpo = CASES[name]
    for method in OUTCOME:
        assert shaped(method, batch_of(responses)).rewards.tolist() == grpo
    for method in SHAPED_AS_GAR:
        parts = shaped(method, batch_of(responses))
        assert parts.rewards.tolist() == gar
        assert torch.equal(parts.rewards, parts.outcomes + parts.bonuses + parts.penalties)
        assert {values.dtype for values in vars(parts).values()} == {torch.float64}


def test_methods_are_named_as_they_name_themselves_and_take_the_same_penalty():
    """No method pays for a right answer in bad format, all take the same from it, and none writes -0.0."""
    named = get_args(OutcomeMethod), get_args(AlignedMethod)
    needs = [
        tuple(name for name, each in METHODS.items() if bool(each.alignment) == aligned) for aligned in (False, True)
    ]
    assert named == tuple(needs), "settings.py: OutcomeMethod and AlignedMethod, in the order of methods/registry.py"
    assert all(name == method.name and method.summary for name, method in METHODS.items())
    tested = {*OUTCOME, *SHAPED_AS_GAR, "g2rl", "alignment-only"}
    assert {*METHODS} == tested, "an example by hand here: OUTCOME, SHAPED_AS_GAR, or a test of its own"
    batch = batch_of([(True, True, 0.5), (True, False, 0.5), (False, False, 0.5)])
    for method in METHODS:
        parts = shaped(method, batch)
        assert parts.penalties.tolist() == [0.0, -0.6, -0.6], method
        assert float(parts.rewards[0]) > float(parts.rewards[1]), method
        assert float(parts.outcomes[1]) == float(parts.outcomes[2]), method
        for values in vars(shaped(method, batch_of(CASES["bad format"][0]))).values():
            assert "-0.0" not in [str(value) for value in values.tolist()]


def test_shape_obeys_the_format_gate():
    """Equation 6 pays base and bonus to a right answer in bad format, beside the penalty."""
    batch = batch_of(CASES["bad format"][0])
    assert eligible_responses(batch, RewardSettings(format_gate="equation")).tolist() == [True, True, True, False]
    found = shaped("gar-grpo", batch, format_gate="equation").rewards.tolist()
    # The mean of (0.75, 0.25, 1.0) is 2/3: bonuses 1/24, 0, 1/6.
    assert found == pytest.approx([1 + 1 / 24, 1.0, 1 + 1 / 6 - 0.6, -0.6], abs=1e-15)


MEMBER = st.tuples(st.booleans(), st.booleans(), st.one_of(st.floats(-1, 1), st.just(NAN)), st.integers(0, 3))
MEMBERS = st.lists(MEMBER, min_size=1, max_size=24)


@given(MEMBERS, st.sampled_from(["algorithm", "equation"]), st.booleans(), st.booleans())
def test_gar_grpo_with_beta_zero_is_grpo_bit_for_bit(members, gate, center, clip):
    batch = batch_of([member[:3] for member in members], [member[3] for member in members])
    ours = shaped("gar-grpo", batch, bonus_weight=0.0, format_gate=gate, center=center, clip=clip)
    plain = shaped("grpo", batch, format_gate=gate)
    for part in ("rewards", "outcomes", "penalties"):
        assert torch.equal(getattr(ours, part).view(torch.int64), getattr(plain, part).view(torch.int64))


def test_shapes_of_g2rl_and_of_the_alignment_alone_by_hand():
    """Two right responses alike, a right and a wrong one at right angles: the first two are not novel at all.

    The last has no vector, which is no novelty of 0: it is not in the group's range.
    """
    batch = replace(
        batch_of([(True, True, 0.75), (True, True, 0.25), (True, True, NAN), (False, False, -0.5), (True, True, NAN)]),
        vectors=torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
    )
    for method, outcomes, rewards in (
        ("g2rl", [1.0, 1.0, 1.0, -1.0, 1.0], [1.0, 1.0, 2.0, -2.6, 1.0]),
        ("alignment-only", [0.0] * 5, [0.75, 0.25, 0.0, -1.1, 0.0]),
    ):
        parts = shaped(method, batch)
        assert (parts.outcomes.tolist(), parts.rewards.tolist()) == (outcomes, rewards)
        assert parts.penalties.tolist() == [0.0, 0.0, 0.0, -0.6, 0.0]
        torch.testing.assert_close(parts.outcomes + parts.bonuses + parts.penalties, parts.rewards, rtol=0, atol=1e-15)


def test_a_method_that_no_driver_could_serve_is_an_error():
    before = dict(METHODS)
    declared: tuple[tuple[dict[str, Any], str], ...] = (
        ({"name": "grpo"}, "method-taken"),
        ({"signal": {"knd": "hidden"}}, "bad-method"),
        ({"reward": ("correct_reward", "bonus_wait")}, "bad-method"),
        ({"alignment": "expert"}, "bad-method"),
        ({"estimator": "ppo"}, "bad-method"),
        ({"alignment": "text", "compares_responses": True}, "bad-method"),
        ({"settings": Settings}, "bad-method"),
    )
    for changes, code in declared:
        method = Method(**{"name": "mine", "summary": "", "shape": outcome_rewards, **changes})
        with raises(ConfigError, code):
            register(method)
    assert before == METHODS
    with raises(ConfigError, "method"):
        find_method("mine")
    with raises(ConfigError, "bad-method"):
        find_method(method)


# The controls' similarities.


def test_random_anchors_are_even_over_the_sphere():
    rows = random_anchor_vectors(range(5_000), 3, seed=0).double()
    torch.testing.assert_close(rows.norm(dim=-1), torch.ones(5_000).double(), rtol=1e-6, atol=0)
    # Mean 0 and second moments 1/3 on the sphere in 3 dimensions; 5,000 rows leave 0.008, five of those allowed.
    torch.testing.assert_close(rows.mean(0), torch.zeros(3).double(), rtol=0, atol=0.04)
    torch.testing.assert_close(rows.T @ rows / 5_000, torch.eye(3).double() / 3, rtol=0, atol=0.04)


def test_random_anchors_follow_problem_and_seed():
    found = random_anchor_vectors([3, 7, 3], 5, seed=4)
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], random_anchor_vectors([3], 5, seed=5)[0])
    assert random_anchor_vectors([], 5, seed=4).shape == (0, 5)


def test_length_similarity_is_min_over_max_of_scored_tokens():
    sequences = [TokenSequence(context_ids=[1], ids=range(9), positions=range(n)) for n in (3, 4)]
    assert [length_similarity(a, b, lambda ids: []) for a in sequences for b in sequences] == [1.0, 0.75, 0.75, 1.0]
