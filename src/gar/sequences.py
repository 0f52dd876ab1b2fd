"""Choose the scored tokens of a response or an anchor from the existing token ids, never by re-tokenizing.

A tag may be one token or several, and a token may hold a tag and more (`>\\n`). Tags are found in the tokens' texts,
decoded one by one. A token that holds a character of a tag belongs to the tag.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

from gar.settings import MAX_TOKENS, SignalSettings, VerifySettings
from gar.types import ResponseVerifier, Tags

TokenPieces = Callable[[Sequence[int]], list[str]]

_BREAK = "\n"
"""Separates two turns of the policy, so that no tag or number forms across them."""


def token_pieces(tokenizer: Any) -> TokenPieces:
    """Make a function that maps token ids to the text that each token adds. Texts are cached per id.

    Each token is decoded after another one, since some tokenizers drop the space before the first token, and `< think>`
    is no tag. The bytes of a split character decode to replacement marks.
    """
    decoded: dict[int, str] = {}
    before = tokenizer.encode("a", add_special_tokens=False)[-1:]

    def decode(ids: list[int]) -> str:
        return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def pieces(ids: Sequence[int]) -> list[str]:
        for token in set(ids).difference(decoded):
            decoded[token] = decode([*before, token]).removeprefix(decode(before))
        return [decoded[token] for token in ids]

    return pieces


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanRule:
    """How to choose the scored tokens.

    Attributes:
        thinking: Score the thinking part if there is exactly one, otherwise the whole response.
        max_tokens: Largest number of scored tokens. None scores all.
        limit_from: Which part of a longer span to keep: "end" or "start".
        tags: The markers of the thinking part.
        special_ids: Ids to strip from the end of a response (eos, padding), never ids of tags.
    """

    thinking: bool
    max_tokens: int | None
    limit_from: str
    tags: Tags
    special_ids: frozenset[int]

    @classmethod
    def from_settings(cls, settings: SignalSettings, *, format: str, tags: Tags, tokenizer: Any) -> "SpanRule":
        """The rule of a run. An unset `span` follows the format."""
        span = settings.span or ("think" if format == "think-answer" else "response")
        return cls(
            thinking=span == "think",
            max_tokens=MAX_TOKENS if settings.max_tokens == "auto" else settings.max_tokens,
            limit_from=settings.limit_from,
            tags=tags,
            special_ids=special_ids(tokenizer, tags),
        )

    @classmethod
    def for_verifier(cls, settings: SignalSettings, verifier: ResponseVerifier | None, tokenizer: Any) -> "SpanRule":
        """The rule for responses that a verifier checks. Without one there is no format."""
        format, tags = ("none", Tags()) if verifier is None else (verifier.format, verifier.tags)
        return cls.from_settings(settings, format=format, tags=tags, tokenizer=tokenizer)


def special_ids(tokenizer: Any, tags: Tags) -> frozenset[int]:
    """The ids that end or pad a response. Tags count as text, even if they are special tokens of the tokenizer."""
    names = {token: str(added) for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    names |= zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    markers = (tags.think_open, tags.think_close, tags.answer_open, tags.answer_close)
    return frozenset(token for token, name in names.items() if name not in markers)


def without_trailing_special(ids: Sequence[int], special_ids: frozenset[int]) -> list[int]:
    """The ids without the special ones at the end."""
    end = len(ids)
    while end and ids[end - 1] in special_ids:
        end -= 1
    return list(ids[:end])


def policy_turns(ids: Sequence[int], mask: Sequence[int] | None) -> list[list[int]]:
    """The runs of a response's ids that the policy wrote. `mask` is 0 for others (tools), None if there are none."""
    if mask is None:
        return [list(ids)]
    runs = groupby(zip(ids, mask, strict=True), key=lambda pair: bool(pair[1]))
    return [[token for token, _ in run] for written, run in runs if written]


def thinking_span(pieces: Sequence[str], tags: Tags, *, prefilled: bool = False) -> range | None:
    """The positions strictly between the thinking tags in the texts of tokens.

    None unless there is exactly one pair of tags in order. With `prefilled` the prompt holds the opening tag.
    """
    text = "".join(pieces)
    opening = 0 if prefilled else 1
    if text.count(tags.think_open) != opening or text.count(tags.think_close) != 1:
        return None
    begin = text.find(tags.think_open) + len(tags.think_open) if opening else 0
    end = text.find(tags.think_close)
    if end < begin:
        return None
    positions = []
    offset = 0
    for position, piece in enumerate(pieces):
        if offset >= begin and offset + len(piece) <= end:
            positions.append(position)
        offset += len(piece)
    return range(positions[0], positions[-1] + 1) if positions else range(0)


def scored_positions(
    ids: Sequence[int],
    pieces: TokenPieces,
    rule: SpanRule,
    *,
    prefilled: bool = False,
    mask: Sequence[int] | None = None,
) -> list[int]:
    """Find the positions of the tokens that enter a response's gradient-activation vector.

    Args:
        ids: Token ids of the response, including special tokens.
        pieces: The function from `token_pieces`.
        rule: The span and its limit.
        prefilled: The prompt ends in the opening thinking tag.
        mask: As in `policy_turns`. Tags that the policy did not write do not count.

    Returns:
        Ascending positions in `ids`. Empty if there is nothing to score.
    """
    body = without_trailing_special(ids, rule.special_ids)
    written = [piece if mask is None or mask[i] else _BREAK for i, piece in enumerate(pieces(body))]
    span = thinking_span(written, rule.tags, prefilled=prefilled) if rule.thinking else None
    positions = [i for i in (range(len(body)) if span is None else span) if mask is None or mask[i]]
    if rule.max_tokens is None or len(positions) <= rule.max_tokens:
        return positions
    return positions[-rule.max_tokens :] if rule.limit_from == "end" else positions[: rule.max_tokens]


def ends_in_thinking_tag(prompt_ids: Sequence[int], pieces: TokenPieces, tags: Tags) -> bool:
    """Whether the prompt already opens the thinking part, as some chat templates do."""
    # A tag has at most one token per character, and white space may follow it.
    tail = "".join(pieces(prompt_ids[-len(tags.think_open) - 8 :]))
    return tail.rstrip().endswith(tags.think_open)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSequence:
    """A context, the ids that follow it, and the positions in `ids` of the scored tokens.

    Example: TokenSequence(context_ids=[5, 6], ids=[9, 7, 8, 10], positions=[1, 2])
    """

    context_ids: Sequence[int]
    ids: Sequence[int]
    positions: Sequence[int]
    mask: Sequence[int] | None = None
    """As in `policy_turns`."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the context and after it."""
        return len(self.context_ids) + len(self.ids)

    def cut(self) -> "TokenSequence":
        """The sequence up to its last scored token, without its mask. A causal model needs no later token."""
        return replace(self, ids=self.ids[: self.positions[-1] + 1], mask=None)

    @property
    def scored_ids(self) -> list[int]:
        """The ids of the scored tokens."""
        return [self.ids[position] for position in self.positions]


NO_SEQUENCE = TokenSequence(context_ids=(), ids=(), positions=())


def context_of(config: Any) -> int | None:
    """Context length of a model in tokens, from its transformers configuration. None if that sets no limit."""
    return getattr(config.get_text_config(), "max_position_embeddings", None)


class AnchorSequences(NamedTuple):
    """The anchors of a problem that can be scored, and the number of anchors that exceed the model's context."""

    usable: tuple[TokenSequence, ...] = ()
    num_too_long: int = 0


NO_ANCHORS = AnchorSequences()


class SequenceReader:
    """Makes sequences to score from token ids and texts, by the same rule for all engines.

    Args:
        tokenizer: The policy's.
        rule: Which tokens are scored.
        context: Context length of the model in tokens. None for no limit.
    """

    def __init__(self, tokenizer: Any, rule: SpanRule, *, context: int | None = None):
        self._tokenizer = tokenizer
        self._context = context
        self.rule = rule
        self.pieces: TokenPieces = token_pieces(tokenizer)

    @classmethod
    def from_settings(
        cls, tokenizer: Any, signal: SignalSettings, verify: VerifySettings, *, context: int | None = None
    ) -> "SequenceReader":
        """The reader of a run, from its settings."""
        rule = SpanRule.from_settings(signal, format=verify.format, tags=verify.tags, tokenizer=tokenizer)
        return cls(tokenizer, rule, context=context)

    def prefilled(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt opens the thinking part."""
        return ends_in_thinking_tag(prompt_ids, self.pieces, self.rule.tags)

    def text(self, ids: Sequence[int], mask: Sequence[int] | None = None) -> str:
        """The policy's turns (`policy_turns`) without trailing special tokens: the verifier's view of a response."""
        return _BREAK.join(
            str(self._tokenizer.decode(turn, skip_special_tokens=False, clean_up_tokenization_spaces=False))
            for turn in self._turns(ids, mask)
        )

    def is_empty(self, ids: Sequence[int], mask: Sequence[int] | None = None) -> bool:
        """Whether the policy wrote nothing but blanks and special tokens."""
        return not any("".join(self.pieces(turn)).strip() for turn in self._turns(ids, mask))

    def _turns(self, ids: Sequence[int], mask: Sequence[int] | None) -> list[list[int]]:
        return [without_trailing_special(turn, self.rule.special_ids) for turn in policy_turns(ids, mask)]

    def response(
        self, prompt_ids: Sequence[int], ids: Sequence[int], *, mask: Sequence[int] | None = None
    ) -> TokenSequence:
        """A response after its prompt. `mask`: see `policy_turns`."""
        positions = scored_positions(ids, self.pieces, self.rule, prefilled=self.prefilled(prompt_ids), mask=mask)
        return TokenSequence(context_ids=prompt_ids, ids=ids, positions=positions, mask=mask)

    def anchor(self, prompt_ids: Sequence[int], text: str) -> TokenSequence:
        """An expert solution after its prompt, scored under the same rule as the responses.

        If responses are scored on their thinking part and the text has no tags, the opening tag is appended to the
        prompt. The text is encoded without a chat template.
        """
        tag, context = self.rule.tags.think_open, list(prompt_ids)
        prefilled, tagged = self.prefilled(prompt_ids), tag in text
        if prefilled and tagged:
            text = text.split(tag, 1)[1]
        elif self.rule.thinking and not tagged and not prefilled:
            context += self._tokenizer.encode(tag, add_special_tokens=False)
            prefilled = True
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        positions = scored_positions(ids, self.pieces, self.rule, prefilled=prefilled)
        return TokenSequence(context_ids=context, ids=ids, positions=positions)

    def anchors(self, prompt_ids: Sequence[int], texts: Sequence[str]) -> AnchorSequences:
        """The expert solutions to one problem."""
        sequences = [(sequence, self.fault(sequence)) for sequence in (self.anchor(prompt_ids, t) for t in texts)]
        return AnchorSequences(
            usable=tuple(sequence for sequence, fault in sequences if fault is None),
            num_too_long=sum(fault == "too long" for _, fault in sequences),
        )

    def fault(self, sequence: TokenSequence) -> Literal["no tokens", "too long"] | None:
        """Why a sequence cannot be scored: it has no scored token, or one beyond the model's context."""
        if not sequence.positions:
            return "no tokens"
        length = len(sequence.context_ids) + sequence.positions[-1] + 1
        return "too long" if self._context is not None and length > self._context else None
