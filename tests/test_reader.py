"""Which tokens are scored, on two tokenizers: with one token per tag, and with tags of several merged tokens."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from gar.reader import (
    Reader,
    SpanRule,
    ends_in_thinking_tag,
    scored_positions,
    special_ids,
    thinking_span,
    token_pieces,
    without_trailing_special,
)
from gar.response import TokenSequence
from gar.settings import SignalSettings, VerifySettings
from gar.types import Tags
from tests.support.tiny import word_tokenizer

TAGS = Tags()
TAG_WORDS = ["<think>", "</think>", "<answer>", "</answer>", "<|think|>", "<|/think|>"]
WORDS = ["<pad>", "<eos>", "<unk>", *TAG_WORDS, *"abcdef7"]


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    """One token per word, tags included. No tag is a special token."""
    return word_tokenizer(WORDS)


@pytest.fixture(scope="module")
def bpe() -> PreTrainedTokenizerFast:
    """Byte-level BPE in which `<think>` is several tokens, and `>\\n` and `.<` are one."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=266,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<pad>", "<eos>"],
        show_progress=False,
    )
    backend.train_from_iterator(["a>\nb>\nc>\nd>\ne>\n", "1.<2.<3.<4.<5.<", "the thin thing", "think"], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")
    assert texts(tokenizer, encode(tokenizer, "<think>\nso.</think>\n")) == [
        "<", "thin", "k", ">\n", "s", "o", ".<", "/", "thin", "k", ">\n",
    ]  # fmt: skip
    return tokenizer


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def texts(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> list[str]:
    return [tokenizer.decode([token]) for token in ids]


def rule_for(tokenizer: PreTrainedTokenizerFast, tags: Tags = TAGS, **settings) -> SpanRule:
    return SpanRule.from_settings(SignalSettings(**settings), VerifySettings(tags=tags), tokenizer)


def scored(tokenizer: PreTrainedTokenizerFast, text: str, *, prefilled: bool = False, mask=None, **rule) -> list[str]:
    """The texts of the scored tokens of a response."""
    ids = encode(tokenizer, text)
    positions = scored_positions(
        ids, token_pieces(tokenizer), rule_for(tokenizer, **rule), prefilled=prefilled, mask=mask
    )
    assert positions == sorted(positions)
    return texts(tokenizer, [ids[position] for position in positions])


RELEASED = Tags(think_open="<|think|>", think_close="<|/think|>")


@pytest.mark.parametrize(
    ("kind", "text", "options", "expected"),
    [
        ("words", "<think> a b c </think> <answer> 7 </answer> <eos>", {}, "a b c"),
        ("words", "d e <think> a b </think> f", {}, "a b"),
        ("words", "a b </think> 7", {"prefilled": True}, "a b"),
        ("words", "<think> a </think> 7 <eos>", {"span": "response"}, "<think> a </think> 7"),
        ("words", "a <eos> b <eos>", {"span": "response"}, "a <eos> b"),  # a special token that is not trailing
        ("words", "<eos> <pad> <pad>", {}, ""),
        ("words", "<eos> <pad>", {"span": "response"}, ""),
        ("words", "", {}, ""),
        ("words", "<think> </think> <answer> 7 </answer>", {}, ""),
        ("words", "</think> 7", {"prefilled": True}, ""),
        ("words", "<|think|> a b <|/think|> 7", {"tags": RELEASED}, "a b"),
        ("words", "<think> a </think>", {"tags": RELEASED}, "<think> a </think>"),
        ("bpe", "<think>it is</think><answer>5</answer>", {}, "it is"),  # tags of several tokens
        ("bpe", "<think>\nso.</think>\n", {}, "so"),  # ">\n" and ".<" hold a character of a tag, so belong to it
        ("bpe", "so.</think>\n5", {"prefilled": True}, "so"),
        ("bpe", "<think></think><answer>5</answer>", {}, ""),
    ],
)
def test_scored_positions_lie_strictly_between_the_tags(kind, text, options, expected, request):
    found = scored(request.getfixturevalue(kind), text, **options)
    assert found == (expected.split() if kind == "words" else [*expected])


def test_scored_positions_are_the_whole_response_without_one_well_ordered_pair(words):
    for text, prefilled in (
        ("a b c", False),  # no tags
        ("<think> a b", False),  # cut off
        ("a b </think> 7", False),  # the opening tag is missing
        ("</think> a <think> b", False),  # reversed
        ("<think> a </think> <think> b </think>", False),  # doubled
        ("<think> a <think> b </think> c </think>", False),  # nested
        ("<think> <think> a </think>", False),
        ("<think> a </think> b </think>", False),
        ("<think> a </think> 7", True),  # the prompt has opened it already
        ("a </think> b </think>", True),
        ("a b", True),
    ):
        assert scored(words, f"{text} <eos> <pad> <pad>", prefilled=prefilled) == text.split()


def test_scored_positions_find_tags_that_are_special_tokens():
    tokenizer = word_tokenizer(WORDS, additional_special_tokens=["<think>", "</think>"])
    assert tokenizer.convert_tokens_to_ids("</think>") in tokenizer.all_special_ids
    # A response that stops at the closing tag: it is a tag, not padding.
    assert scored(tokenizer, "<think> a b </think> <eos> <pad>") == ["a", "b"]
    # TRL decodes the ids without their trailing special tokens for the verifier: the tag must stay.
    ids = encode(tokenizer, "<think> a </think> <eos>")
    assert texts(tokenizer, without_trailing_special(ids, special_ids(tokenizer, TAGS))) == ["<think>", "a", "</think>"]


def test_special_ids_hold_added_special_tokens_that_have_no_role():
    # <|eom_id|> of Llama 3 ends responses, but the tokenizer does not list it among its special tokens.
    tokenizer = word_tokenizer(WORDS)
    tokenizer.add_tokens(["<turn>"], special_tokens=True)
    turn = tokenizer.convert_tokens_to_ids("<turn>")
    assert turn not in tokenizer.all_special_ids
    assert special_ids(tokenizer, TAGS) == {*tokenizer.all_special_ids, turn}
    assert scored(tokenizer, "a b <turn>", span="response") == ["a", "b"]


def test_special_ids_hold_an_end_token_that_is_a_word_of_the_vocabulary():
    # Its list of special tokens has it, its added tokens do not.
    tokenizer = word_tokenizer(WORDS)
    tokenizer.eos_token = "b"
    word = tokenizer.convert_tokens_to_ids("b")
    assert not tokenizer.added_tokens_decoder.get(word)
    assert word in special_ids(tokenizer, TAGS)
    assert scored(tokenizer, "a b b", span="response") == ["a"]


def test_scored_positions_are_found_on_the_given_ids_where_encoding_the_text_gives_others(bpe):
    text = "<think>the thin thing</think>"
    ids = [token for character in text for token in encode(bpe, character)]  # as a sampler may write it
    assert bpe.decode(ids) == text
    assert len(encode(bpe, text)) < len(ids) == len(text)
    positions = scored_positions(ids, token_pieces(bpe), rule_for(bpe))
    assert positions == list(range(len("<think>"), len(text) - len("</think>")))


def test_scored_positions_count_bytes_of_a_split_character(bpe):
    # An emoji is four byte tokens here; none decodes to a character by itself.
    ids = encode(bpe, "<think>é😀</think>")
    positions = scored_positions(ids, token_pieces(bpe), rule_for(bpe))
    assert bpe.decode([ids[position] for position in positions]) == "é😀"
    assert len(positions) == 6


def test_token_pieces_keep_the_space_that_a_sentencepiece_decoder_drops_in_front():
    backend = Tokenizer(models.WordLevel({"▁a": 0, "▁<": 1, "▁think>": 2, "<think>": 3, "</think>": 4, "▁": 5}, "▁"))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    pieces = token_pieces(tokenizer)
    assert tokenizer.decode([2]) == "think>"
    assert pieces([1, 2]) == [" <", " think>"]
    assert thinking_span(pieces([1, 2, 0, 4]), TAGS) is None  # "< think> a</think>" has no opening tag
    assert thinking_span(pieces([3, 5, 0, 4]), TAGS) == range(1, 3)


def test_thinking_span_skips_tokens_without_text_outside_the_tags():
    assert thinking_span(["", "<think>", "", "x", "", "</think>", ""], TAGS) == range(2, 5)


def test_scored_positions_keep_the_end_or_the_start_of_a_long_span_without_masked_tokens(words):
    text = "f <think> a b c d e </think> f <eos>"
    for limit_from, max_tokens, expected in (
        ("end", 2, "d e"), ("start", 2, "a b"), ("end", 1, "e"), ("end", 5, "a b c d e"), ("start", 768, "a b c d e"),
        ("end", None, "a b c d e"),
    ):  # fmt: skip
        assert scored(words, text, limit_from=limit_from, max_tokens=max_tokens) == expected.split()
    text, mask = "<think> a b c d e </think>", [1, 1, 0, 0, 1, 1, 1]
    assert scored(words, text, mask=mask) == ["a", "d", "e"]
    assert scored(words, text, mask=mask, max_tokens=2, limit_from="start") == ["a", "d"]
    assert scored(words, text, mask=[0] * 7) == []


TURNS = "<think> a <eos> | <think> 7 </think> <answer> 7 </answer> | b </think> c <eos> | d"
"""Turns of the policy and, in the second and fourth place, of a tool."""


def turns_of(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[list[int], list[int]]:
    turns = [encode(tokenizer, turn) for turn in text.split(" | ")]
    mask = [int(place % 2 == 0) for place, turn in enumerate(turns) for _ in turn]
    return [token for turn in turns for token in turn], mask


def test_reader_reads_the_policy_s_own_turns_alone(words, bpe):
    reader = Reader(words, rule_for(words))
    ids, mask = turns_of(words, TURNS)
    assert reader.text(ids, mask) == "<think> a\nb </think> c"
    assert reader.text(ids) != reader.text(ids, mask)
    assert not reader.read([3], ids, mask=mask).empty
    ids_of_tool, mask_of_tool = turns_of(words, "<eos> | a")
    silent = reader.read([3], ids_of_tool, mask=mask_of_tool)
    assert (silent.empty, silent.text) == (True, "")
    found = scored_positions(ids, token_pieces(words), rule_for(words), mask=mask)
    assert texts(words, [ids[i] for i in found]) == ["a", "<eos>", "b"]
    ids, mask = turns_of(bpe, "<think>ab</thi | c | nk>")
    assert len(scored_positions(ids, token_pieces(bpe), rule_for(bpe), mask=mask)) == sum(mask)  # no tag across turns


def test_span_rule_follows_the_format_unless_told(words):
    def rule(format: str, span: str | None) -> SpanRule:
        return SpanRule.from_settings(SignalSettings(span=span), VerifySettings(format=format, tags=TAGS), words)

    assert [rule(format, None).thinking for format in ("think-answer", "boxed", "none")] == [True, False, False]
    assert rule("boxed", "think").thinking
    assert not rule("think-answer", "response").thinking


def test_ends_in_thinking_tag_sees_the_tag_and_white_space_after_it(bpe):
    for end in ("solve it <think>", "solve it <think>\n", "solve it <think>  \n\n", "<think>"):
        assert ends_in_thinking_tag(encode(bpe, end), token_pieces(bpe), TAGS)
    qwen3_without_thinking = "<think>\n\n</think>\n\n"
    for end in ("solve it", qwen3_without_thinking, "a <think> and more", ""):
        assert not ends_in_thinking_tag(encode(bpe, end), token_pieces(bpe), TAGS)


def anchored(tokenizer: PreTrainedTokenizerFast, prompt: str, text: str, **rule) -> tuple[str, list[str]]:
    """The whole text, and the texts of the scored tokens."""
    sequence = Reader(tokenizer, rule_for(tokenizer, **rule)).anchor(encode(tokenizer, prompt), text)
    whole = tokenizer.decode([*sequence.context_ids, *sequence.ids])
    return whole, texts(tokenizer, [sequence.ids[position] for position in sequence.positions])


BROKEN = "<think> c </think> <think> d </think>"


@pytest.mark.parametrize(
    ("prompt", "text", "rule", "whole", "counted"),
    [
        ("a b", "<think> c d </think> 7", {}, "a b <think> c d </think> 7", "c d"),
        ("a b", "c d <eos>", {}, "a b <think> c d <eos>", "c d"),  # the opening tag before a text without tags
        ("a", "c </think> d", {}, "a <think> c </think> d", "c"),
        ("a", BROKEN, {}, f"a {BROKEN}", BROKEN),
        ("a <think>", "<think> c </think> d", {}, "a <think> c </think> d", "c"),  # not opened twice
        ("a <think>", "c d", {}, "a <think> c d", "c d"),
        ("a <think>", "c </think> d", {}, "a <think> c </think> d", "c"),
        ("a", "c d", {"span": "response"}, "a c d", "c d"),
        ("a", BROKEN, {"span": "response"}, f"a {BROKEN}", BROKEN),
        ("a", "b c d e", {"max_tokens": 2}, "a <think> b c d e", "d e"),
        ("a", "b c d e", {"max_tokens": 2, "limit_from": "start"}, "a <think> b c d e", "b c"),
        ("a", "c d", {"tags": RELEASED}, "a <|think|> c d", "c d"),
        ("a", "", {}, "a <think>", ""),
        ("a", "<think> </think> 7", {}, "a <think> </think> 7", ""),
    ],
)
def test_anchor_is_scored_on_its_thinking_part(words, prompt, text, rule, whole, counted):
    assert anchored(words, prompt, text, **rule) == (whole, counted.split())


def test_anchor_never_merges_the_tag_with_the_text(bpe):
    assert anchored(bpe, "sum.", "it is") == ("sum.<think>it is", [*"it is"])
    whole, counted = anchored(bpe, "sum.", "\nso")
    assert whole == "sum.<think>\nso"
    assert counted == ["\n", "s", "o"]  # encoded in one go, ">\n" would be one token, and not scored


def test_anchor_is_the_sequence_of_a_response_with_the_same_text(words):
    """A response equal to the expert's has the same scored tokens and context."""
    prompt, text = encode(words, "a b"), "<think> c d </think> <answer> 7 </answer>"
    rule = rule_for(words)
    ids = encode(words, text)
    response = TokenSequence(context_ids=prompt, ids=ids, positions=scored_positions(ids, token_pieces(words), rule))
    assert Reader(words, rule).anchor(prompt, text) == response


def test_a_sequence_fits_into_a_context_of_exactly_its_length(words):
    sequence = TokenSequence(context_ids=[1, 2], ids=[3, 4, 5], positions=[0, 1])  # tokens after the last do not count
    for context, fault in ((4, None), (3, "too long"), (None, None)):
        found = Reader(words, rule_for(words), context=context).fault(sequence)
        assert (found and found.status) == fault
