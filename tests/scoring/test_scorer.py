"""GARScorer on the embedded model: its numbers against the core's, what it leaves behind, and bad input by name."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from gar import GARScorer, ResponseGroup, ResponseScore
from gar.core import (
    alignment_scores,
    group_advantages,
    novelty_rewards,
    novelty_scores,
    unit_rows,
)
from gar.data.arithmetic import METHODS, WORDINGS, load_arithmetic, write_solution
from gar.errors import ConfigError, DataError, ModelError
from gar.methods import Method, ScoredBatch, ShapedRewards, outcome_rewards
from gar.models.embedded import load_embedded
from gar.models.families import find_parts
from gar.scoring import SignalStatus, signal_means
from gar.sequences import SequenceReader, SpanRule, TokenSequence, scored_positions, token_pieces
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings, VerifySettings
from gar.types import Problem, Status, Tags
from gar.verify import Verifier
from tests.support.rewards import gradient_aligned_rewards

# Two batches of other widths round the last bits of float32 otherwise.
CLOSE = 2e-6


@pytest.fixture(scope="module")
def embedded():
    return load_embedded()


@pytest.fixture(scope="module")
def verifier():
    with Verifier(num_workers=1) as verifier:
        yield verifier


@pytest.fixture(scope="module")
def scorer(embedded, verifier) -> GARScorer:
    return GARScorer(*embedded, verifier=verifier)


def written(problem: Problem) -> list[str]:
    """Right and well formatted in every method and wording; then a wrong answer, and a right one without thinking."""
    right = [write_solution(problem, method, wording) for method in METHODS for wording in WORDINGS]
    wrong = right[0].replace(f"<answer> {problem.answer}", f"<answer> {(int(problem.answer) + 1) % 10}")
    return [*right, wrong, f"<answer> {problem.answer} </answer>"]


def group_of(problem: Problem, responses: Sequence[str] | None = None) -> ResponseGroup:
    return ResponseGroup(
        id=problem.id,
        prompt=problem.prompt,
        responses=responses or written(problem),
        anchors=[anchor.text for anchor in problem.anchors],
        answer=problem.answer,
    )


@pytest.fixture(scope="module")
def groups() -> list[ResponseGroup]:
    return [group_of(problem) for problem in load_arithmetic("train")[:3]]


def assert_equal(found: Sequence[ResponseScore], expected: Sequence[ResponseScore]) -> None:
    """The same but for the last bits of a forward pass in another batch."""
    for a, b in zip(found, expected, strict=True):
        for name in ("alignment", "signal_norm", "bonus", "reward"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=CLOSE)
        numbers = {"alignment": None, "signal_norm": None, "bonus": 0, "reward": 0, "advantage": 0}
        assert replace(a, **numbers) == replace(b, **numbers)


# The numbers.


def test_scores_are_those_of_the_core(embedded, scorer, groups):
    """Each step again by hand: spans, means, cosines, rewards, advantages."""
    model, tokenizer = embedded
    rule = SpanRule.from_settings(SignalSettings(), format="think-answer", tags=Tags(), tokenizer=tokenizer)
    pieces, parts = token_pieces(tokenizer), find_parts(model)
    scores = scorer.score(groups)
    assert [(s.id, s.group_index, s.response_index) for s in scores] == [
        (group.id, g, r) for g, group in enumerate(groups) for r in range(8)
    ]
    for g, group in enumerate(groups):
        mine = [score for score in scores if score.group_index == g]
        prompt = tokenizer.encode(group.prompt)
        sequences = []
        for text in group.responses[:6]:
            ids = tokenizer.encode(text, add_special_tokens=False)
            sequences.append(TokenSequence(context_ids=prompt, ids=ids, positions=scored_positions(ids, pieces, rule)))
        anchor = SequenceReader(tokenizer, rule).anchor(prompt, group.anchors[0])
        means = signal_means(parts, [*sequences, anchor], SignalSettings())
        vectors = unit_rows(means)
        alignment = alignment_scores(vectors[:6], vectors[6:].expand(6, -1))
        assert [s.alignment for s in mine[:6]] == pytest.approx(alignment.tolist(), abs=CLOSE)
        assert [s.signal_norm for s in mine[:6]] == pytest.approx(means[:6].norm(dim=-1).tolist(), rel=1e-5)
        assert [s.num_scored_tokens for s in mine[:6]] == [len(sequence.positions) for sequence in sequences]
        rewards = gradient_aligned_rewards(
            torch.tensor([True] * 6 + [False] * 2),
            torch.cat([alignment.double(), torch.zeros(2).double()]),
            torch.tensor([0.0] * 7 + [-0.6], dtype=torch.float64),
            torch.zeros(8, dtype=torch.long),
        )
        assert [s.reward for s in mine] == pytest.approx(rewards.tolist(), abs=CLOSE)
        own = torch.tensor([s.reward for s in mine], dtype=torch.float64)
        advantages = group_advantages(own, torch.zeros(8, dtype=torch.long), scale="std", ddof=0, eps=1e-6)
        assert [s.advantage for s in mine] == advantages.tolist()


def test_scores_say_what_the_verifier_found_and_what_was_scored(scorer, groups):
    scores = scorer.score(groups[:1])
    assert [s.status for s in scores] == [Status.OK] * 6 + [Status.WRONG, Status.OK]
    assert [s.well_formatted for s in scores] == [True] * 7 + [False]
    assert [s.eligible for s in scores] == [True] * 6 + [False] * 2
    assert [s.signal for s in scores] == [SignalStatus.SCORED] * 6 + [SignalStatus.SKIPPED] * 2
    assert [s.reward for s in scores[6:]] == [0.0, -0.6]
    assert [s.penalty for s in scores] == [0.0] * 7 + [-0.6]
    assert scores[6].alignment is None
    assert scores[6].signal_norm is None
    assert scores[7].detail.startswith("0 <think>, expected 1")
    assert all(s.reward == 1.0 + s.bonus for s in scores[:6])
    assert max(s.bonus for s in scores) > 0.01


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_scores_of_token_ids_are_those_of_the_text(embedded, scorer, groups, kind):
    _, tokenizer = embedded
    as_ids = [
        replace(
            group,
            prompt=kind(tokenizer.encode(group.prompt)),
            responses=[kind(tokenizer.encode(text)) for text in group.responses],
            anchors=[kind(tokenizer.encode(text)) for text in group.anchors],
        )
        for group in groups
    ]
    assert scorer.score(as_ids) == scorer.score(groups)


def test_scores_of_ids_set_their_end_token_aside(embedded, scorer, groups):
    _, tokenizer = embedded
    (plain,) = scorer.score([replace(groups[0], responses=groups[0].responses[:1])])
    ended = [[*tokenizer.encode(groups[0].responses[0]), tokenizer.eos_token_id, tokenizer.pad_token_id]]
    (found,) = scorer.score([replace(groups[0], responses=ended)])
    assert found == replace(plain, num_tokens=plain.num_tokens + 2)


def test_scores_do_not_depend_on_company_or_order(scorer, groups):
    together = scorer.score(groups)
    assert_equal(together, [replace(s, group_index=g) for g in range(3) for s in scorer.score([groups[g]])])
    order = [5, 0, 7, 2, 1, 6, 4, 3]
    shuffled = replace(groups[0], responses=[groups[0].responses[i] for i in order])
    found = scorer.score([shuffled])
    assert_equal(
        [
            replace(s, response_index=order[s.response_index])
            for s in sorted(found, key=lambda s: order[s.response_index])
        ],
        together[:8],
    )


@pytest.mark.parametrize("max_batch_tokens", [1, 50, 10_000])
def test_scores_do_not_depend_on_the_memory_bound(embedded, verifier, scorer, groups, max_batch_tokens):
    signal = SignalSettings(max_batch_tokens=max_batch_tokens)
    assert_equal(GARScorer(*embedded, verifier=verifier, signal=signal).score(groups), scorer.score(groups))


def test_score_all_adds_alignments_and_leaves_rewards(embedded, verifier, scorer, groups):
    plain = scorer.score(groups)
    everything = GARScorer(*embedded, verifier=verifier, score_all=True).score(groups)
    assert all(s.signal is SignalStatus.SCORED for s in everything)
    assert sum(s.alignment is None for s in plain) == 6
    assert [s.reward for s in everything] == pytest.approx([s.reward for s in plain], abs=CLOSE)
    assert [s.bonus for s in everything if not s.eligible] == [0.0] * 6


def test_own_judgment_takes_the_place_of_a_verifier(embedded, groups):
    group = replace(groups[0], answer=None, eligible=[True, True, False, False, True, False, False, False])
    scores = GARScorer(*embedded, signal=SignalSettings(span="think")).score([group])
    assert [s.eligible for s in scores] == list(group.eligible)
    assert {s.status for s in scores} == {None}
    assert [s.reward for s in scores if not s.eligible] == [0.0] * 5  # no format, no penalty
    assert [s.signal is SignalStatus.SCORED for s in scores] == list(group.eligible)


def test_settings_reach_rewards_and_advantages(embedded, verifier, groups):
    reward = RewardSettings(bonus_weight=0.0, correct_reward=2.0, format_penalty=-1.0)
    bessel = GARScorer(*embedded, verifier=verifier, reward=reward, advantage=AdvantageSettings(ddof=1, eps=0.0))
    scores = bessel.score(groups[:1])
    assert [s.reward for s in scores] == [2.0] * 6 + [0.0, -1.0]
    mean, deviation = 11 / 8, (sum((r - 11 / 8) ** 2 for r in [2] * 6 + [0, -1]) / 7) ** 0.5
    expected = [(s.reward - mean) / deviation for s in scores]
    assert [s.advantage for s in scores] == pytest.approx(expected, rel=1e-12)


def test_one_eligible_response_earns_no_bonus_and_costs_no_pass(embedded, verifier, scorer, groups):
    lonely = replace(groups[0], responses=groups[0].responses[5:])
    scores = scorer.score([lonely])
    assert [s.signal for s in scores] == [SignalStatus.SKIPPED] * 3
    assert [s.reward for s in scores] == [1.0, 0.0, -0.6]


@pytest.mark.parametrize("clip", [True, False])
def test_without_centering_a_lone_eligible_response_earns_its_own_cosine(embedded, verifier, groups, clip):
    lonely = [replace(group, responses=[group.responses[1], *group.responses[6:]]) for group in groups]
    reward = RewardSettings(center=False, clip=clip)
    scores = GARScorer(*embedded, verifier=verifier, reward=reward).score(lonely)
    everything = GARScorer(*embedded, verifier=verifier, reward=reward, score_all=True).score(lonely)
    assert [s.bonus for s in everything] == pytest.approx([s.bonus for s in scores], abs=CLOSE)
    for score in scores[::3]:
        assert score.signal is SignalStatus.SCORED
        assert score.bonus == pytest.approx(0.5 * (max(0.0, score.alignment) if clip else score.alignment), abs=1e-12)
    assert max(score.bonus for score in scores) > 0.01


def test_the_best_of_several_anchors_counts(scorer, groups):
    group = groups[0]
    texts = group.responses[:6:2]
    separate = [scorer.score([replace(group, anchors=[text])]) for text in texts]
    together = scorer.score([replace(group, anchors=[*texts, "", "  "])])
    for i in range(6):
        best = max(scores[i].alignment for scores in separate)
        assert together[i].alignment == pytest.approx(best, abs=CLOSE)


def test_a_response_equal_to_its_anchor_has_alignment_one_and_is_named(scorer, groups):
    copied = replace(groups[0], responses=[*groups[0].responses[:4], groups[0].anchors[0]])
    *others, last = scorer.score([copied])
    assert last.alignment == pytest.approx(1.0, abs=1e-6)
    assert last.detail == "equals its anchor"
    expected = {text == groups[0].anchors[0] for text in copied.responses[:4]}
    assert {score.detail == "equals its anchor" for score in others} == expected


# Token shares.


def test_token_shares_add_up_to_the_alignment(embedded, scorer, groups):
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


def test_token_shares_follow_the_best_anchor(embedded, verifier, groups):
    scorer = GARScorer(*embedded, verifier=verifier)
    group = replace(groups[0], anchors=groups[0].responses[:6:2])
    scores = scorer.score([group], tokens=True)
    assert any(score.token_shares for score in scores)
    for score in scores:
        if score.token_shares is not None:
            shares = [share for share in score.token_shares if share is not None]
            assert sum(shares) == pytest.approx(score.alignment, abs=CLOSE)


# What is left behind.


def test_scoring_in_a_training_loop_changes_nothing(embedded, verifier, scorer, groups):
    expected = scorer.score(groups)
    model, tokenizer = copy.deepcopy(embedded[0]), embedded[1]
    model.train()
    model.model.norm.eval()  # a module with a mode of its own
    model.gradient_checkpointing_enable()
    modes = [module.training for module in model.modules()]
    mine = GARScorer(model, tokenizer, verifier=verifier)
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            assert mine.score(groups) == expected
            assert torch.is_grad_enabled() is enabled
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.is_gradient_checkpointing


def test_the_current_weights_count(embedded, verifier, groups):
    model, tokenizer = copy.deepcopy(embedded[0]), embedded[1]
    mine = GARScorer(model, tokenizer, verifier=verifier)
    initial = GARScorer(model, tokenizer, verifier=verifier, signal=SignalSettings(policy="initial"))
    before = mine.score(groups)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(0.5)
    after = mine.score(groups)
    assert max(abs(a.alignment - b.alignment) for a, b in zip(after, before, strict=True) if a.alignment) > 1e-3
    assert initial.score(groups) == before


def test_an_adapter_counts_as_it_is_switched(embedded, verifier, scorer, groups):
    torch.manual_seed(0)
    config = LoraConfig(target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    adapted = get_peft_model(copy.deepcopy(embedded[0]), config)
    mine = GARScorer(adapted, embedded[1], verifier=verifier)
    switched_on = mine.score(groups)
    assert max(abs(a.reward - b.reward) for a, b in zip(switched_on, scorer.score(groups), strict=True)) > 1e-3
    with adapted.disable_adapter():
        assert_equal(mine.score(groups), scorer.score(groups))
    merged = GARScorer(adapted.merge_and_unload(), embedded[1], verifier=verifier)
    for a, b in zip(merged.score(groups), switched_on, strict=True):
        assert a.reward == pytest.approx(b.reward, abs=1e-4)


def test_bfloat16_weights_are_used_as_they_are(embedded, verifier, scorer, groups):
    half = GARScorer(copy.deepcopy(embedded[0]).bfloat16(), embedded[1], verifier=verifier)
    for a, b in zip(half.score(groups), scorer.score(groups), strict=True):
        assert a.alignment == pytest.approx(b.alignment, abs=0.05)  # hidden states of 8 bits
        assert a.signal is b.signal


# Bad input: named, and the rest goes on.


def others_are_unharmed(
    scorer: GARScorer, groups: Sequence[ResponseGroup], spoilt: ResponseGroup
) -> list[ResponseScore]:
    """Scores of `spoilt`, after a check that the groups around it have the scores they have without it."""
    first, mine, last = scorer.score([groups[0]]), [], scorer.score([groups[1]])
    found = scorer.score([groups[0], spoilt, groups[1]])
    mine = found[8:-8]
    assert_equal(found[:8], first)
    assert_equal(found[-8:], [replace(score, group_index=2) for score in last])
    return mine


@pytest.mark.parametrize(
    ("response", "signal", "detail"),
    [
        ("", SignalStatus.NO_TOKENS, "it is empty"),
        ([], SignalStatus.NO_TOKENS, "it is empty"),
        ([1, 1, 0], SignalStatus.NO_TOKENS, "there is no token to score"),
        ([5, 36, 7], SignalStatus.UNKNOWN_TOKENS, "token id 36 lies outside the model's vocabulary of 36. Do the tok"),
        ([5, -1, 7], SignalStatus.UNKNOWN_TOKENS, "token id -1 lies outside the model's vocabulary of 36. Do the tok"),
        ("7 " * 503, SignalStatus.TOO_LONG, "513 tokens with the prompt, but the model's context is 512"),
    ],
    ids=["empty text", "no ids", "special ids alone", "unknown id", "negative id", "too long"],
)
def test_a_response_that_cannot_be_scored_is_named(embedded, verifier, groups, response, signal, detail):
    scorer = GARScorer(*embedded, verifier=verifier, score_all=True)
    ids = isinstance(response, list)
    texts = groups[2].responses[:3]
    responses = [*([embedded[1].encode(text) for text in texts] if ids else texts), response]
    *fine, last = others_are_unharmed(scorer, groups, replace(groups[2], responses=responses))
    assert last.signal is signal
    assert last.alignment is None
    assert last.signal_norm is None
    assert last.bonus == 0.0
    assert detail in last.detail
    assert all(score.signal is SignalStatus.SCORED for score in fine)
    assert all(score.tokens is None or score.token_shares is None for score in scorer.score([groups[2]]))


def test_a_response_at_the_end_of_the_context_is_scored(embedded, groups):
    group = replace(groups[0], responses=["7 " * 502] * 2, eligible=[True] * 2)
    scores = GARScorer(*embedded, signal=SignalSettings(max_tokens=None)).score([group])
    assert [(score.signal, score.num_scored_tokens) for score in scores] == [(SignalStatus.SCORED, 502)] * 2


def test_a_prompt_without_tokens_is_named(scorer, groups):
    empty = replace(groups[2], prompt=[], responses=[[5, 6]], eligible=[True], anchors=[[5]])
    (score,) = others_are_unharmed(scorer, groups, empty)
    assert score.signal is SignalStatus.NO_TOKENS
    reason = "the prompt has no tokens, so nothing predicts the first one"
    assert score.detail == f"{reason}; its anchor cannot be used (no tokens): {reason}"


@pytest.mark.parametrize(
    ("anchors", "detail"),
    [
        ([], ""),
        (["", "  "], ""),
        (["7 " * 520], "its anchor cannot be used (too long): 5"),
        ([[5, 99]], "its anchor cannot be used (unknown tokens): token id 99 lies outside"),
    ],
    ids=["none", "blank", "too long", "unknown"],
)
def test_a_group_without_a_usable_anchor_earns_no_bonus(embedded, verifier, groups, anchors, detail):
    scorer = GARScorer(*embedded, verifier=verifier, signal=SignalSettings(max_tokens=None))
    scores = others_are_unharmed(scorer, groups, replace(groups[2], anchors=anchors))
    assert {score.signal for score in scores} == {SignalStatus.NO_ANCHOR}
    assert [score.reward for score in scores] == [1.0] * 6 + [0.0, -0.6]
    assert all(detail in score.detail for score in scores)


def test_an_unusable_anchor_leaves_the_usable_one(scorer, groups):
    scores = scorer.score([replace(groups[0], anchors=[*groups[0].anchors, "7 " * 520])])
    assert [score.alignment for score in scores] == pytest.approx(
        [score.alignment for score in scorer.score(groups[:1])], abs=CLOSE
    )
    assert "its anchor cannot be used (too long)" in scores[0].detail


def test_a_model_that_gives_nan_for_one_row_spoils_only_that_row(embedded, verifier, groups):
    model, tokenizer = copy.deepcopy(embedded[0]), embedded[1]
    word = tokenizer.convert_tokens_to_ids("maybe")
    with torch.no_grad():
        model.model.embed_tokens.weight[word] = torch.nan
    scorer = GARScorer(model, tokenizer, verifier=verifier, score_all=True)
    scores = scorer.score(groups, tokens=True)
    texts = [text for group in groups for text in group.responses]
    expected = GARScorer(*embedded, verifier=verifier, score_all=True).score(groups, tokens=True)
    bad = ["maybe" in text for text in texts]
    assert sum(bad) == 3
    for is_bad, score, fine in zip(bad, scores, expected, strict=True):
        if is_bad:
            assert (score.signal, score.alignment, score.signal_norm) == (SignalStatus.NOT_FINITE, None, None)
            assert (score.reward, score.token_shares) == (1.0, None)
            assert score.detail == "the model gave NaN or infinity for it"
        else:
            assert score.alignment == pytest.approx(fine.alignment, abs=CLOSE)


def test_an_anchor_for_which_the_model_gives_nan_is_named(embedded, verifier, groups):
    model, tokenizer = copy.deepcopy(embedded[0]), embedded[1]
    with torch.no_grad():
        model.model.embed_tokens.weight[tokenizer.convert_tokens_to_ids("maybe")] = torch.nan
    anchors = [text for text in groups[0].responses if "maybe" in text]
    scores = GARScorer(model, tokenizer, verifier=verifier).score([replace(groups[0], anchors=anchors)])
    assert scores[0].signal is SignalStatus.NO_ANCHOR
    assert scores[0].detail == "its anchor has no usable vector"
    assert scores[0].reward == 1.0


@pytest.mark.slow
def test_ten_thousand_responses_to_one_prompt(embedded, groups):
    texts = ["7", "1 2", "7 is 7", "8", "3 = 3", "4 5"]
    group = ResponseGroup(prompt="7=", responses=(texts * 1667)[:10_000], anchors=["7 = 7"], eligible=[True] * 10_000)
    scores = GARScorer(*embedded).score([group])
    assert len(scores) == 10_000
    few = [score.alignment for score in scores[:6]]
    assert [score.alignment for score in scores] == pytest.approx((few * 1667)[:10_000], abs=CLOSE)
    assert sum(score.advantage for score in scores) == pytest.approx(0.0, abs=1e-6)


def test_nothing_to_score_gives_nothing(scorer, groups):
    assert scorer.score([]) == []
    assert scorer.score([replace(groups[0], responses=[])]) == []
    assert len(scorer.score([replace(groups[0], responses=[]), groups[1]])) == 8


def test_a_row_in_the_place_of_a_group_is_refused(scorer):
    with pytest.raises(DataError, match=r"^group 0 is dict, expected a gar\.ResponseGroup: prompt, responses, "):
        scorer.score([{"prompt": "3+4=", "responses": ["7"]}])


def test_groups_that_do_not_say_what_is_right_are_refused(embedded, scorer, groups):
    with pytest.raises(ValueError, match=r"group 0 \(train-0\): no gold answer to verify against. Give `answer`, or"):
        scorer.score([replace(groups[0], answer=None)])
    with pytest.raises(
        ValueError, match=r"group 1 .*: nothing says which responses are right. Give `eligible`, or the"
    ):
        GARScorer(*embedded).score([replace(groups[0], eligible=[True] * 8), groups[1]])
    with pytest.raises(ValueError, match="eligible must have one entry per response, expected 8, got 2"):
        scorer.score([replace(groups[0], eligible=[True, False])])


# Other tokenizers.


def tiny(vocab: int) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen3ForCausalLM(config).eval()


@pytest.fixture
def merging_tokenizer() -> PreTrainedTokenizerFast:
    """Characters, and one merge: "=7" is a single token."""
    characters = {character: i for i, character in enumerate("?3+=7ab")}
    backend = Tokenizer(models.BPE(vocab={**characters, "=7": 7}, merges=[("=", "7")], unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?", eos_token="?")


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(merging_tokenizer):
    with pytest.raises(
        ModelError, match=r"the tokenizer has 8 tokens but the model only 7 embeddings\. Do they belong"
    ):
        GARScorer(tiny(7), merging_tokenizer)


def test_chat_messages_need_a_chat_template(merging_tokenizer):
    scorer = GARScorer(tiny(8), merging_tokenizer)
    chat = ResponseGroup(prompt=[{"role": "user", "content": "3="}], responses=["7"], eligible=[True])
    with pytest.raises(ModelError, match="the tokenizer has no chat template"):
        scorer.score([chat])
    merging_tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}+"
    plain = ResponseGroup(prompt="3=+", responses=["7a", "7b"], anchors=["7"], eligible=[True] * 2)
    as_chat = replace(plain, prompt=[{"role": "user", "content": "3="}])
    assert scorer.score([as_chat]) == scorer.score([plain])


# Other methods.


def vectors_of(embedded, group: ResponseGroup, settings: SignalSettings, verify: VerifySettings) -> torch.Tensor:
    model, tokenizer = embedded
    reader = SequenceReader.from_settings(tokenizer, settings, verify)
    prompt = tokenizer.encode(group.prompt)
    sequences = [reader.response(prompt, tokenizer.encode(text, add_special_tokens=False)) for text in group.responses]
    return unit_rows(signal_means(find_parts(model), sequences, settings))


def test_g2rl_scores_are_those_of_the_core(embedded, verifier, groups):
    settings = SignalSettings(kind="gradient", span="response", max_tokens=None)
    scores = GARScorer(*embedded, method="g2rl", verifier=verifier).score(groups[:1])
    eligible, index = torch.tensor([True] * 6 + [False] * 2), torch.zeros(8, dtype=torch.long)
    vectors = vectors_of(embedded, groups[0], settings, VerifySettings())
    rewards = novelty_rewards(
        eligible,
        novelty_scores(vectors, eligible, index).double(),
        torch.tensor([0.0] * 7 + [-0.6], dtype=torch.float64),
        index,
    )
    assert len(set(rewards.tolist())) > 3
    assert [score.reward for score in scores] == pytest.approx(rewards.tolist(), abs=1e-5)
    assert {score.signal for score in scores} == {SignalStatus.SCORED}
    assert {score.alignment for score in scores} == {None}


def test_g2rl_needs_no_anchor_and_tells_tokens_without_shares(embedded, verifier, groups):
    scorer = GARScorer(*embedded, method="g2rl", verifier=verifier)
    with_anchors = scorer.score(groups[:1])
    without = scorer.score([replace(groups[0], anchors=())], tokens=True)
    assert [score.reward for score in without] == pytest.approx([score.reward for score in with_anchors], abs=1e-6)
    assert all(score.tokens and score.token_shares is None for score in without)


@pytest.mark.parametrize("method", ["length", "text-similarity"])
def test_a_similarity_needs_no_pass_and_centers_as_gar_does(embedded, verifier, groups, method):
    scores = GARScorer(*embedded, method=method, verifier=verifier).score(groups[:1])
    alignments = [score.alignment for score in scores[:6]]
    assert len(set(alignments)) > 1
    assert all(0 < alignment <= 1 for alignment in alignments)
    mean = sum(alignments) / 6
    bonuses = [0.5 * max(0.0, alignment - mean) for alignment in alignments]
    assert [score.bonus for score in scores[:6]] == pytest.approx(bonuses, abs=1e-12)
    assert [score.alignment for score in scores[6:]] == [None, None]
    assert {score.signal_norm for score in scores} == {None}


def test_grpo_scores_are_the_outcome_alone(embedded, verifier, groups):
    scores = GARScorer(*embedded, method="grpo", verifier=verifier).score(groups[:1])
    assert [score.reward for score in scores] == [1.0] * 6 + [0.0, -0.6]
    assert {score.signal for score in scores} <= {SignalStatus.SKIPPED, SignalStatus.NO_TOKENS}


@pytest.mark.parametrize("method", ["grpo", "g2rl", "length", "alignment-only"])
def test_score_all_computes_no_more_than_the_method_reads(embedded, verifier, groups, method):
    """A method without alignment has nothing to score: it was reported as NaN from the model."""
    some, every = (
        GARScorer(*embedded, method=method, verifier=verifier, score_all=all_of_them).score(groups[:1])
        for all_of_them in (False, True)
    )
    assert [score.reward for score in every] == pytest.approx([score.reward for score in some], abs=CLOSE)
    assert SignalStatus.NOT_FINITE not in {score.signal for score in every}


def test_g2rl_names_a_response_for_which_the_model_gives_infinity(embedded, verifier, groups, monkeypatch):
    def overflowing(parts, sequences, settings, **_):
        return torch.cat([torch.full((1, 4), torch.inf), torch.eye(len(sequences) - 1, 4)])

    monkeypatch.setattr("gar.scoring.scorer.signal_means", overflowing)
    scores = GARScorer(*embedded, method="g2rl", verifier=verifier).score(groups[:1])
    assert (scores[0].signal, scores[0].signal_norm) == (SignalStatus.NOT_FINITE, None)
    assert scores[1].signal is SignalStatus.SCORED


def test_a_method_that_compares_both_ways_has_vectors_where_there_is_no_anchor(embedded, verifier, groups):
    seen: list[ScoredBatch] = []

    def shape(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
        seen.append(batch)
        return outcome_rewards(batch, settings)

    both = Method(name="both", summary="", shape=shape, alignment="anchor", compares_responses=True)
    pair = [groups[0], replace(groups[1], anchors=())]
    for score_all in (False, True):
        scores = GARScorer(*embedded, method=both, verifier=verifier, score_all=score_all).score(pair)
        vectors = seen[-1].vectors
        assert vectors is not None
        assert bool((vectors != 0).any(-1).all())
        assert seen[-1].scored.tolist() == [True] * 8 + [False] * 8
        assert {score.signal for score in scores[8:]} == {SignalStatus.NO_ANCHOR}


def test_a_method_of_ones_own_is_scored(embedded, verifier, groups):
    half = Method(name="half", summary="half the outcome", shape=half_the_outcome)
    scores = GARScorer(*embedded, method=half, verifier=verifier).score(groups[:1])
    assert [score.reward for score in scores] == [0.5] * 6 + [0.0, -0.6]


def half_the_outcome(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    return outcome_rewards(batch, settings.model_copy(update={"correct_reward": settings.correct_reward / 2}))


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("maspo", "the method weighs single tokens in the policy loss"),
        ("dapo", "the method sets fields of TRL's policy loss"),
        ("anchor-random", "the method gives each problem of the data set a random vector"),
        ("anchor-shuffled", "the anchors of another problem of the data set"),
        (
            "gar-reinforce-plus-plus",
            r"runs \(grpo, gar-grpo, g2rl, .*\): there is no estimator reinforce-plus-plus here",
        ),
        ("gar", "unknown method 'gar', expected one of grpo"),
    ],
)
def test_a_method_that_a_scorer_cannot_run_is_refused(embedded, method, text):
    with pytest.raises(ConfigError, match=text):
        GARScorer(*embedded, method=method)


def test_settings_that_the_method_does_not_read_are_named(embedded):
    with pytest.warns(UserWarning, match=r"Not read by grpo under GARScorer: reward\.bonus_weight\."):
        GARScorer(*embedded, method="grpo", reward=RewardSettings(bonus_weight=0.25))
