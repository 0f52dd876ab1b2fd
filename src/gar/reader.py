"""Read prompts, responses and anchors: token ids, texts, scored tokens, faults, verdicts.

Scored tokens are chosen from the existing token ids, never by re-tokenizing. A tag may be one token or several, and a
token may hold a tag and more (`>\\n`). Tags are found in the tokens' texts, decoded one by one. A token that holds a
character of a tag belongs to the tag.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from gar.errors import DataError, ModelError, did_you_mean
from gar.response import NO_ANCHORS, Anchors, Response, ScoringFault, SignalStatus, TokenSequence
from gar.settings import MAX_TOKENS, SignalSettings, VerifySettings
from gar.types import Problem, Prompt, ResponseVerifier, Tags, problem_text
from gar.verify.formats import FORMATS

TokenPieces = Callable[[Sequence[int]], list[str]]
Checks = VerifySettings | ResponseVerifier | None

_BREAK = "\n"
"""Separates two turns of the policy, so that no tag or number forms across them."""


def token_pieces(tokenizer: Any) -> TokenPieces:
    """Make a function that maps token ids to the text that each token adds. Texts are cached per id.

    Each token is decoded together with a token before it, because some tokenizers drop the space before the first
    token, and `< think>` is no tag. The bytes of a split character decode to replacement marks.
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
    def from_settings(cls, settings: SignalSettings, checks: Checks, tokenizer: Any) -> "SpanRule":
        """The rule of a run. An unset `span` follows the format that `checks` requires. None requires no format."""
        format, tags = ("none", Tags()) if checks is None else (checks.format, checks.tags)
        span = settings.span or FORMATS[format].span
        return cls(
            thinking=span == "think",
            max_tokens=MAX_TOKENS if settings.max_tokens == "auto" else settings.max_tokens,
            limit_from=settings.limit_from,
            tags=tags,
            special_ids=special_ids(tokenizer, tags),
        )


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


def check_template_arguments(tokenizer: Any, arguments: Mapping[str, Any] | None) -> None:
    """Raise a `ModelError` for an argument whose name the chat template does not contain, since Jinja ignores it."""
    template = getattr(tokenizer, "chat_template", None)
    if not arguments or not isinstance(template, str):
        return
    names = set(re.findall(r"\w+", template))
    accepted = names | inspect.signature(tokenizer.apply_chat_template).parameters.keys()
    for name in arguments:
        if name not in accepted:
            raise ModelError(
                f"chat_template_kwargs has {name!r}, which the model's chat template does not read."
                f"{did_you_mean(str(name), names)}",
                code="template-argument",
            )


def encode_prompt(
    tokenizer: Any, prompt: Prompt, *, chat_template_kwargs: Mapping[str, Any] | None = None
) -> list[int]:
    """Token ids of a prompt, equal to those that TRL trains on.

    Args:
        tokenizer: The policy's tokenizer.
        prompt: Plain text, encoded as it is, or chat messages, rendered by the chat template.
        chat_template_kwargs: Arguments of the chat template, for example {"enable_thinking": False}.

    Raises:
        ModelError: The prompt is a list of chat messages, and the tokenizer has no chat template.
    """
    if isinstance(prompt, str):
        return tokenizer(text=prompt)["input_ids"]
    if tokenizer.chat_template is None:
        raise ModelError(
            "the prompt is a list of chat messages, but the tokenizer has no chat template. Is this a base model? Give "
            "the problems as plain text, or set tokenizer.chat_template.",
            code="no-chat-template",
        )
    return tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, tokenize=True, return_dict=True, **(chat_template_kwargs or {})
    )["input_ids"]


class Reader:
    """Reads prompts, responses and anchors from token ids and texts, by the same rules for all engines.

    Args:
        tokenizer: The policy's.
        rule: Which tokens are scored.
        context: Context length of the model in tokens. None for no limit.
        vocabulary: Number of the model's tokens. None if all ids are known to be valid.
        chat_template_kwargs: As in `encode_prompt`.

    Raises:
        ModelError: The chat template does not read one of its arguments.
    """

    def __init__(
        self,
        tokenizer: Any,
        rule: SpanRule,
        *,
        context: int | None = None,
        vocabulary: int | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ):
        check_template_arguments(tokenizer, chat_template_kwargs)
        self.tokenizer = tokenizer
        self._context, self._vocabulary = context, vocabulary
        self._chat_template_kwargs = chat_template_kwargs
        self.rule = rule
        self.pieces: TokenPieces = token_pieces(tokenizer)

    @classmethod
    def from_settings(cls, tokenizer: Any, signal: SignalSettings, checks: Checks, **limits: Any) -> "Reader":
        """The reader of a run (`SpanRule.from_settings`). `limits` are the class's other arguments."""
        return cls(tokenizer, SpanRule.from_settings(signal, checks, tokenizer), **limits)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, as `encode_prompt`."""
        return encode_prompt(self.tokenizer, prompt, chat_template_kwargs=self._chat_template_kwargs)

    def encode_all(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Token ids of several prompts, all text or all chat messages."""
        if not prompts:
            return []
        if isinstance(prompts[0], str):
            return self.tokenizer(text=list(prompts))["input_ids"]
        several: Any = list(prompts)
        ids: Any = encode_prompt(self.tokenizer, several, chat_template_kwargs=self._chat_template_kwargs)
        return ids

    def rendered(self, prompt: Prompt) -> str:
        """A prompt's text, with the chat template's markup."""
        if isinstance(prompt, str):
            return prompt
        options = self._chat_template_kwargs or {}
        return str(self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **options))

    def prompt_text(self, prompt_ids: Sequence[int]) -> str:
        """Text of a prompt's ids, with the chat template's markup."""
        return self.tokenizer.decode(self._known(prompt_ids))

    def problem(self, prompt_ids: Sequence[int], answer: Any, columns: Mapping[str, Any] | None) -> Problem:
        """Rebuild a problem from the columns that an engine carries.

        `columns` are those that `gar data slime` and `gar data verl` write, with the problem's text without
        instructions. Other data lacks that column, and the prompt's text replaces it.
        """
        carried = columns or {}
        text = carried.get("problem") or self.prompt_text(prompt_ids)
        return Problem(id=str(carried.get("id", "")), prompt=str(text), answer=str(answer))

    def prefilled(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt opens the thinking part."""
        return ends_in_thinking_tag(self._known(prompt_ids), self.pieces, self.rule.tags)

    def text(self, ids: Sequence[int], mask: Sequence[int] | None = None) -> str:
        """The policy's turns (`policy_turns`) without trailing special tokens: the verifier's view of a response."""
        turns = [without_trailing_special(turn, self.rule.special_ids) for turn in policy_turns(ids, mask)]
        return _BREAK.join(
            str(self.tokenizer.decode(turn, skip_special_tokens=False, clean_up_tokenization_spaces=False))
            for turn in turns
        )

    def read(
        self,
        prompt_ids: Sequence[int],
        response: Sequence[int] | str,
        *,
        mask: Sequence[int] | None = None,
        anchors: Anchors = NO_ANCHORS,
        group_index: int = 0,
        truncated: bool = False,
    ) -> Response:
        """A response after its prompt, from its ids, or from its text. `mask`: see `policy_turns`."""
        is_text = isinstance(response, str)
        ids = self.tokenizer.encode(response, add_special_tokens=False) if is_text else response
        prefilled = self.prefilled(prompt_ids)
        sequence = self._sequence(prompt_ids, ids, prefilled, mask)
        text = response if is_text else self.text(self._known(ids), mask)
        return Response(
            group_index=group_index,
            sequence=sequence,
            text=text,
            prefilled=prefilled,
            truncated=truncated,
            empty=not text.strip(),
            fault=self.fault(sequence),
            anchors=anchors,
        )

    def anchor(self, prompt_ids: Sequence[int], solution: Sequence[int] | str) -> TokenSequence:
        """An expert solution after its prompt, scored under the same rule as the responses.

        If responses are scored on their thinking part and a text has no tags, the opening tag is appended to the
        prompt. The text is encoded without a chat template. Ids are used as they are.
        """
        tag, context, prefilled = self.rule.tags.think_open, list(prompt_ids), self.prefilled(prompt_ids)
        if isinstance(solution, str):
            if prefilled and tag in solution:
                solution = solution.split(tag, 1)[1]
            elif self.rule.thinking and not prefilled and tag not in solution:
                context += self.tokenizer.encode(tag, add_special_tokens=False)
                prefilled = True
        ids = self.tokenizer.encode(solution, add_special_tokens=False) if isinstance(solution, str) else solution
        return self._sequence(context, ids, prefilled)

    def anchors(self, prompt_ids: Sequence[int], solutions: Sequence[Sequence[int] | str]) -> Anchors:
        """The expert solutions to one problem. Empty ones are left out."""
        given = [each for each in solutions if (each.strip() if isinstance(each, str) else len(each))]
        sequences = [(sequence, self.fault(sequence)) for sequence in (self.anchor(prompt_ids, each) for each in given)]
        return Anchors(
            usable=tuple(sequence for sequence, fault in sequences if fault is None),
            faults=tuple(fault for _, fault in sequences if fault is not None),
        )

    def carried_anchors(
        self, prompt_ids: Sequence[int], columns: Mapping[str, Any] | None, *, shuffled: bool | None = None
    ) -> Anchors:
        """The expert solutions to a problem, a list or one text, from the columns of an engine's row (see `problem`).

        `--shuffle-anchors` writes expert solutions of another problem, which follow that problem's prompt. With
        `shuffled` True they must be of this kind, with False they must not. None allows both.

        Raises:
            DataError: They are shuffled and should not be, or the other way round.
        """
        carried = columns or {}
        texts, other_prompt = carried.get("anchors"), carried.get("anchor_prompt")
        if texts is None or not len(texts):
            return NO_ANCHORS
        texts = [texts] if isinstance(texts, str) else texts
        if shuffled is not None and shuffled != (other_prompt is not None):
            found, option = ("its own", "with") if shuffled else ("another problem's", "without")
            raise DataError(
                f"problem {carried.get('id')!r} comes with {found} expert solutions. Write the data {option} "
                f"--shuffle-anchors, which is for the method anchor-shuffled and no other.",
                code="shuffled-anchors",
            )
        if other_prompt is not None:
            is_text = isinstance(other_prompt, str)
            prompt_ids = self.encode(other_prompt if is_text else [dict(message) for message in other_prompt])
        return self.anchors(prompt_ids, texts)

    def fault(self, sequence: TokenSequence) -> ScoringFault | None:
        """Why a sequence cannot be scored. None if it can."""
        context, ids, positions = sequence.context_ids, sequence.ids, sequence.positions
        if not positions:
            return ScoringFault(SignalStatus.NO_TOKENS, "there is no token to score" if ids else "it is empty")
        if not context and positions[0] == 0:
            return ScoringFault(SignalStatus.NO_TOKENS, "the prompt has no tokens, so nothing predicts the first one")
        if len(self._known(context)) + len(self._known(ids)) < sequence.num_tokens:
            unknown = next(token for token in (*context, *ids) if not self._known([token]))
            where = f"token id {unknown} lies outside the model's vocabulary of {self._vocabulary}"
            return ScoringFault(
                SignalStatus.UNKNOWN_TOKENS, f"{where}. Do the tokenizer and the model belong together?"
            )
        length = len(context) + positions[-1] + 1
        if self._context is None or length <= self._context:
            return None
        return ScoringFault(
            SignalStatus.TOO_LONG, f"{length} tokens with the prompt, but the model's context is {self._context}"
        )

    def _known(self, ids: Sequence[int]) -> Sequence[int]:
        """The ids of the model's vocabulary."""
        size = self._vocabulary
        return ids if size is None else [token for token in ids if 0 <= token < size]

    def _sequence(
        self, prompt_ids: Sequence[int], ids: Sequence[int], prefilled: bool, mask: Sequence[int] | None = None
    ) -> TokenSequence:
        if len(self._known(prompt_ids)) + len(self._known(ids)) < len(prompt_ids) + len(ids):
            positions: Sequence[int] = range(len(ids))  # texts of unknown tokens cannot be searched for tags
        else:
            positions = scored_positions(ids, self.pieces, self.rule, prefilled=prefilled, mask=mask)
        return TokenSequence(context_ids=prompt_ids, ids=ids, positions=positions, mask=mask)


def judge(verifier: ResponseVerifier, responses: Sequence[Response], problems: Sequence[Problem]) -> list[Response]:
    """Responses with the verifier's verdicts. Every engine calls this, so no engine decides by itself.

    The verifier gets the problem alone: neither a template's instructions nor a chat template's markup.
    """
    if not responses:
        return []
    verdicts = verifier.verify(
        [response.text for response in responses],
        [problem.answer for problem in problems],
        prefilled_think=[response.prefilled for response in responses],
        prompts=[problem_text(problem) for problem in problems],
    )
    return [replace(response, verdict=verdict) for response, verdict in zip(responses, verdicts, strict=True)]
