"""GARScorer on the embedded model: its numbers against the core's, and bad input by name."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from gar import GARScorer, ResponseGroup, ResponseScore
from gar.core import alignment_scores, unit_rows
from gar.data.arithmetic import METHODS, WORDINGS, load_arithmetic, write_solution
from gar.errors import ConfigError, DataError, ModelError
from gar.models.embedded import load_embedded
from gar.models.families import find_parts
from gar.reader import Reader
from gar.scoring import SignalStatus, signal_means
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings, VerifySettings
from gar.types import Problem, Status
from gar.verify import Verifier
from tests.support.errors import raises
from tests.support.rows import group_of

CLOSE = 2e-6  # batches of different widths round differently


@pytest.fixture(scope="module")
def embedded():
    return load_embedded()


@pytest.fixture(scope="module")
def new(embedded):
    """Makes a scorer with a verifier, by default of the embedded model."""
    with Verifier(num_workers=1) as verifier:
        yield lambda model=embedded[0], **options: GARScorer(model, embedded[1], verifier=verifier, **options)


@pytest.fixture(scope="module")
def scorer(new) -> GARScorer:
    return new()


def written(problem: Problem) -> list[str]:
    """Right and well formatted in every method and wording; then a wrong answer, and a right one without thinking."""
    right = [write_solution(problem, method, wording) for method in METHODS for wording in WORDINGS]
    wrong = right[0].replace(f"<answer> {problem.answer}", f"<answer> {(int(problem.answer) + 1) % 10}")
    return [*right, wrong, f"<answer> {problem.answer} </answer>"]


@pytest.fixture(scope="module")
def groups() -> list[ResponseGroup]:
    problems = load_arithmetic("train")[:3]
    return [group_of(problem, written(problem), id=problem.id, answer=problem.answer) for problem in problems]


def assert_equal(found: Sequence[ResponseScore], expected: Sequence[ResponseScore]) -> None:
    """Equal up to the rounding of different batches."""
    for a, b in zip(found, expected, strict=True):
        for name in ("alignment", "signal_norm", "bonus", "reward"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=CLOSE)
        numbers = {"alignment": None, "signal_norm": None, "bonus": 0, "reward": 0, "advantage": 0}
        assert replace(a, **numbers) == replace(b, **numbers)


def test_scores_are_those_of_the_core_and_of_the_verifier(embedded, scorer, groups):
    """Spans, means and cosines by hand, and the verdict of each response."""
    model, tokenizer = embedded
    reader, parts = Reader.from_settings(tokenizer, SignalSettings(), VerifySettings()), find_parts(model)
    scores = scorer.score(groups)
    assert [(s.id, s.group_index, s.response_index) for s in scores] == [
        (group.id, g, r) for g, group in enumerate(groups) for r in range(8)
    ]
    for g, group in enumerate(groups):
        mine = [score for score in scores if score.group_index == g]
        prompt = tokenizer.encode(group.prompt)
        sequences = [reader.read(prompt, tokenizer.encode(text)).sequence for text in group.responses[:6]]
        means = signal_means(parts, [*sequences, reader.anchor(prompt, group.anchors[0])], SignalSettings())
        vectors = unit_rows(means)
        alignment = alignment_scores(vectors[:6], vectors[6:].expand(6, -1))
        assert [s.alignment for s in mine[:6]] == pytest.approx(alignment.tolist(), abs=CLOSE)
        assert [s.signal_norm for s in mine[:6]] == pytest.approx(means[:6].norm(dim=-1).tolist(), rel=1e-5)
        assert [s.num_scored_tokens for s in mine[:6]] == [len(sequence.positions) for sequence in sequences]
        assert [s.status for s in mine] == [Status.OK] * 6 + [Status.WRONG, Status.OK]
        assert [s.well_formatted for s in mine] == [True] * 7 + [False]
        assert [s.eligible for s in mine] == [True] * 6 + [False] * 2
        assert [s.signal for s in mine] == [SignalStatus.SCORED] * 6 + [SignalStatus.SKIPPED] * 2
        assert [s.reward for s in mine] == [1.0 + s.bonus for s in mine[:6]] + [0.0, -0.6]
        assert [s.penalty for s in mine] == [0.0] * 7 + [-0.6]
        assert [(s.alignment, s.signal_norm) for s in mine[6:]] == [(None, None)] * 2
        assert mine[7].detail.startswith("0 <think>, expected 1")


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_scores_of_token_ids_are_those_of_the_text(embedded, scorer, groups, kind):
    """An end token and padding do not count."""
    _, tokenizer = embedded
    end = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    as_ids = [
        replace(
            group,
            prompt=kind(tokenizer.encode(group.prompt)),
            responses=[kind(tokenizer.encode(text) + end) for text in group.responses],
            anchors=[kind(tokenizer.encode(text)) for text in group.anchors],
        )
        for group in groups
    ]
    expected = [replace(score, num_tokens=score.num_tokens + 2) for score in scorer.score(groups)]
    assert scorer.score(as_ids) == expected


def test_scores_do_not_depend_on_other_groups_order_or_memory_bound(new, scorer, groups):
    together = scorer.score(groups)
    assert_equal(together, [replace(s, group_index=g) for g in range(3) for s in scorer.score([groups[g]])])
    order = [5, 0, 7, 2, 1, 6, 4, 3]
    found = scorer.score([replace(groups[0], responses=[groups[0].responses[i] for i in order])])
    back = sorted((replace(s, response_index=order[s.response_index]) for s in found), key=lambda s: s.response_index)
    assert_equal(back, together[:8])
    one_at_a_time = new(signal=SignalSettings(max_batch_tokens=1))
    assert_equal(one_at_a_time.score(groups), together)
    assert scorer.score([]) == scorer.score([replace(groups[0], responses=[])]) == []
    assert_equal(scorer.score([replace(groups[0], responses=[]), groups[1]]), together[8:16])


def test_own_judgment_takes_the_place_of_a_verifier(embedded, groups):
    group = replace(groups[0], answer=None, eligible=[True, True, False, False, True, False, False, False])
    scores = GARScorer(*embedded, signal=SignalSettings(span="think")).score([group])
    assert [s.eligible for s in scores] == list(group.eligible)
    assert {s.status for s in scores} == {None}
    assert [s.reward for s in scores if not s.eligible] == [0.0] * 5  # no format, no penalty
    assert [s.signal is SignalStatus.SCORED for s in scores] == list(group.eligible)


def test_settings_reach_rewards_and_advantages(new, groups):
    reward = RewardSettings(bonus_weight=0.0, correct_reward=2.0, format_penalty=-1.0)
    scores = new(reward=reward, advantage=AdvantageSettings(ddof=1, eps=0.0)).score(groups[:1])
    rewards = torch.tensor([2.0] * 6 + [0.0, -1.0], dtype=torch.float64)
    assert [s.reward for s in scores] == rewards.tolist()
    expected = (rewards - rewards.mean()) / rewards.std()
    assert [s.advantage for s in scores] == pytest.approx(expected.tolist(), rel=1e-12)


def test_a_response_equal_to_its_anchor_has_alignment_one_and_is_named(scorer, groups):
    copied = replace(groups[0], responses=[*groups[0].responses[:4], groups[0].anchors[0]])
    *others, last = scorer.score([copied])
    assert last.alignment == pytest.approx(1.0, abs=1e-6)
    assert last.detail == "equals its expert solution"
    expected = {text == groups[0].anchors[0] for text in copied.responses[:4]}
    assert {score.detail == "equals its expert solution" for score in others} == expected


def test_token_shares_add_up_to_the_alignment_with_the_best_anchor(scorer, groups):
    groups = [replace(groups[0], anchors=groups[0].responses[:6:2]), *groups[1:]]
    scores = scorer.score(groups, tokens=True)
    assert_equal([replace(s, tokens=None, token_shares=None) for s in scores], scorer.score(groups))
    for score, text in zip(scores, [text for group in groups for text in group.responses], strict=True):
        assert len(score.tokens) == score.num_tokens
        assert "".join(score.tokens).replace(" ", "") == text.replace(" ", "")
        if score.signal is not SignalStatus.SCORED:
            assert score.token_shares is None
            continue
        shares = [share for share in score.token_shares if share is not None]
        assert len(score.token_shares) == score.num_tokens
        assert len(shares) == score.num_scored_tokens
        assert sum(shares) == pytest.approx(score.alignment, abs=CLOSE)
        assert score.token_shares[0] is None  # <think>
        assert max(map(abs, shares)) > 0.01


def test_the_current_weights_count(embedded, new, groups):
    model = copy.deepcopy(embedded[0])
    mine = new(model)
    before = mine.score(groups[:1])
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(0.5)
    after = mine.score(groups[:1])
    assert max(abs(a.alignment - b.alignment) for a, b in zip(after, before, strict=True) if a.alignment) > 1e-3


def unharmed(scorer: GARScorer, groups: Sequence[ResponseGroup], spoilt: ResponseGroup) -> list[ResponseScore]:
    """Scores of `spoilt`. Checks that the groups around it keep their scores."""
    found = scorer.score([groups[0], spoilt, groups[1]])
    assert_equal(found[:8], scorer.score([groups[0]]))
    assert_equal(found[-8:], [replace(score, group_index=2) for score in scorer.score([groups[1]])])
    return found[8:-8]


def test_what_cannot_be_scored_is_named(embedded, new, groups):
    scorer = new(score_all=True)
    texts = groups[2].responses[:3]
    for response, signal, detail in (
        ("", SignalStatus.NO_TOKENS, "it is empty"),
        ([1, 1, 0], SignalStatus.NO_TOKENS, "there is no token to score"),
        ([5, 36, 7], SignalStatus.UNKNOWN_TOKENS, "token id 36 lies outside"),
        ([5, -1, 7], SignalStatus.UNKNOWN_TOKENS, "token id -1 lies outside"),
        ("7 " * 503, SignalStatus.TOO_LONG, "513 tokens with the prompt, but the model's context is 512"),
    ):
        given = [embedded[1].encode(text) for text in texts] if isinstance(response, list) else texts
        *fine, last = unharmed(scorer, groups, replace(groups[2], responses=[*given, response]))
        assert (last.signal, last.alignment, last.signal_norm, last.bonus) == (signal, None, None, 0.0)
        assert detail in last.detail
        assert all(score.signal is SignalStatus.SCORED for score in fine)
    empty = replace(groups[2], prompt=[], responses=[[5, 6]], eligible=[True], anchors=[[5]])
    (score,) = unharmed(scorer, groups, empty)
    assert score.signal is SignalStatus.NO_TOKENS
    assert "its expert solution cannot be used (no tokens)" in score.detail


def test_a_group_without_a_usable_anchor_earns_no_bonus(new, groups):
    scorer = new(signal=SignalSettings(max_tokens=None))
    for anchors, detail in (
        ([], ""), (["", "  "], ""), (["7 " * 520], "cannot be used (too long)"), ([[5, 99]], "(unknown tokens)"),
    ):  # fmt: skip
        scores = unharmed(scorer, groups, replace(groups[2], anchors=anchors))
        assert {score.signal for score in scores} == {SignalStatus.NO_ANCHOR}
        assert [score.reward for score in scores] == [1.0] * 6 + [0.0, -0.6]
        assert all(detail in score.detail for score in scores)


def test_a_model_that_gives_nan_for_one_row_spoils_only_that_row(embedded, new, groups):
    model, tokenizer = copy.deepcopy(embedded[0]), embedded[1]
    with torch.no_grad():
        model.model.embed_tokens.weight[tokenizer.convert_tokens_to_ids("maybe")] = torch.nan
    scorer = new(model, score_all=True)
    scores = scorer.score(groups, tokens=True)
    texts = [text for group in groups for text in group.responses]
    expected = new(score_all=True).score(groups, tokens=True)
    assert sum("maybe" in text for text in texts) == 3
    for text, score, fine in zip(texts, scores, expected, strict=True):
        if "maybe" in text:
            assert (score.signal, score.alignment, score.signal_norm) == (SignalStatus.NOT_FINITE, None, None)
            assert (score.reward, score.token_shares) == (1.0, None)
            assert score.detail == "the model gave NaN or infinity for it"
        else:
            assert score.alignment == pytest.approx(fine.alignment, abs=CLOSE)
    anchors = [text for text in groups[0].responses if "maybe" in text]
    score = scorer.score([replace(groups[0], anchors=anchors)])[0]
    assert (score.signal, score.reward) == (SignalStatus.NO_ANCHOR, 1.0)
    assert score.detail == "its expert solution has no usable vector"


def test_what_a_scorer_cannot_work_with_is_an_error(embedded, scorer, groups):
    for judge, changes in ((scorer, {"answer": None}), (scorer, {"eligible": [True]}), (GARScorer(*embedded), {})):
        with raises(DataError, "group"):
            judge.score([groups[1], replace(groups[0], **changes)])
    right = [True, *[False] * (len(groups[0].responses) - 1)]
    for unclear in (-1.0, 0.5, float("nan"), None, "False"):
        with raises(DataError, "group", f"{unclear!r}, expected True or False"):
            scorer.score([replace(groups[0], eligible=[*right[:-1], unclear])])
    for kind in (np.array, torch.tensor, lambda values: [float(value) for value in values]):
        assert scorer.score([replace(groups[0], eligible=kind(right))])[0].eligible
    with raises(ConfigError, "method"):
        GARScorer(*embedded, method="maspo")
    with raises(ModelError, "no-chat-template"):
        scorer.score([replace(groups[0], prompt=[{"role": "user", "content": "3="}])])
    tokenizer = copy.deepcopy(embedded[1])
    tokenizer.add_tokens(["another"])
    with raises(ModelError, "vocabulary"):
        GARScorer(embedded[0], tokenizer)


def test_g2rl_needs_no_anchor_and_tells_tokens_without_shares(new, groups):
    scorer = new(method="g2rl")
    with_anchors = scorer.score(groups[:1])
    without = scorer.score([replace(groups[0], anchors=())], tokens=True)
    assert [score.reward for score in without] == pytest.approx([score.reward for score in with_anchors], abs=1e-6)
    assert all(score.tokens and score.token_shares is None for score in without)
    assert len({score.reward for score in without}) > 3
    assert {(score.signal, score.alignment) for score in without} == {(SignalStatus.SCORED, None)}


def test_score_all_computes_no_more_than_the_method_reads(new, groups):
    """Rewards stay equal. A method without alignment has nothing to score."""
    for method in ("gar-grpo", "grpo", "g2rl", "length", "alignment-only"):
        some, every = (new(method=method, score_all=score_all).score(groups[:1]) for score_all in (False, True))
        assert [score.reward for score in every] == pytest.approx([score.reward for score in some], abs=CLOSE)
        assert [score.bonus for score in every[6:]] == pytest.approx([score.bonus for score in some[6:]], abs=CLOSE)
        assert SignalStatus.NOT_FINITE not in {score.signal for score in every}
        if method == "gar-grpo":
            assert all(score.signal is SignalStatus.SCORED for score in every)
            assert sum(score.alignment is None for score in some) == 2
        if method == "length":  # no pass, and a similarity of each
            assert {score.signal_norm for score in every} == {None}
            assert len({score.alignment for score in some[:6]}) > 1
        if method == "grpo":
            assert {score.signal for score in some} == {SignalStatus.SKIPPED}
