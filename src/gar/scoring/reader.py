"""Turn a group's texts or token ids into sequences to score, or give the reason why one cannot be scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

from gar.data.problems import prompt_text
from gar.models.adapters import num_embeddings
from gar.models.load import check_vocabulary
from gar.rollouts.generate import context_length, encode_prompt
from gar.scoring.scores import ResponseGroup, SignalStatus
from gar.sequences import NO_SEQUENCE, SequenceReader, SpanRule, TokenSequence
from gar.types import Prompt, Status, Verdict

_NO_VERDICT = Verdict(status=Status.ERROR, grade=0.0, verified=False, well_formatted=False)


@dataclass(kw_only=True)
class ReadResponse:
    """One response, with its state in the scorer."""

    group_index: int
    response_index: int
    prefilled: bool
    text: str = ""
    sequence: TokenSequence = NO_SEQUENCE
    fault: SignalStatus | None = None
    verdict: Verdict = _NO_VERDICT
    notes: list[str] = field(default_factory=list)


def _is_text(prompt: Prompt | Sequence[int]) -> TypeGuard[Prompt]:
    return isinstance(prompt, str) or (len(prompt) > 0 and isinstance(prompt[0], Mapping))


class GroupReader:
    """Reads groups with a tokenizer and a span rule, within the limits of a model.

    Raises:
        ModelError: The tokenizer has more tokens than the model has embeddings.
    """

    def __init__(self, model: Any, tokenizer: Any, *, rule: SpanRule, head_rows: int):
        check_vocabulary(tokenizer, model)
        self._sequences = SequenceReader(tokenizer, rule)
        self.pieces = self._sequences.pieces
        self._tokenizer = tokenizer
        self._vocab = min(num_embeddings(model), head_rows)
        self._context = context_length(model)

    def read_group(self, group: ResponseGroup, index: int) -> list["ReadResponse"]:
        """Token ids, text, scored positions and faults of each response."""
        prompt_ids = self._prompt_ids(group.prompt)
        prefilled = self._sequences.prefilled(self._known(prompt_ids))
        rows = []
        for number, response in enumerate(group.responses):
            if isinstance(response, str):
                ids, text = self._tokenizer.encode(response, add_special_tokens=False), response
            else:
                ids = [int(token) for token in response]
                text = self._sequences.text(self._known(ids))
            row = ReadResponse(group_index=index, response_index=number, prefilled=prefilled, text=text)
            row.sequence = self._sequence(prompt_ids, ids)
            row.fault, note = self._fault(row.sequence)
            row.notes += [note] * bool(note)
            rows.append(row)
        return rows

    def read_anchors(self, group: ResponseGroup, rows: Sequence["ReadResponse"]) -> list[TokenSequence]:
        """The usable anchors of a group. If there are none, the notes of its responses give the reason."""
        prompt_ids = rows[0].sequence.context_ids if rows else []
        if not rows or len(self._known(prompt_ids)) < len(prompt_ids):
            return []  # each response reports an unknown token in the prompt itself
        usable, reasons = [], []
        for anchor in group.anchors:
            if not len(anchor) or (isinstance(anchor, str) and not anchor.strip()):
                continue
            if isinstance(anchor, str):
                sequence = self._sequences.anchor(prompt_ids, anchor)
            else:
                sequence = self._sequence(prompt_ids, [int(token) for token in anchor])
            fault, note = self._fault(sequence)
            if fault is None:
                usable.append(sequence)
            else:
                reasons.append(f"its anchor cannot be used ({fault}): {note}")
        for row in rows:
            row.notes += reasons
            if not usable and row.fault is None:
                row.fault = SignalStatus.NO_ANCHOR
            scored = row.sequence.scored_ids
            if row.fault is None and any(anchor.scored_ids == scored for anchor in usable):
                row.notes.append("equals its anchor")
        return usable

    def prompt_text(self, prompt: Prompt | Sequence[int]) -> str:
        """Text of a prompt, for the verifier."""
        if _is_text(prompt):
            return prompt_text(prompt)
        return self._tokenizer.decode(self._known(self._prompt_ids(prompt)))

    def _prompt_ids(self, prompt: Prompt | Sequence[int]) -> list[int]:
        if _is_text(prompt):
            return encode_prompt(self._tokenizer, prompt)
        return [int(token) for token in cast(Sequence[int], prompt)]

    def _known(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if 0 <= token < self._vocab]

    def _sequence(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> TokenSequence:
        if len(self._known([*prompt_ids, *ids])) == len(prompt_ids) + len(ids):
            return self._sequences.response(prompt_ids, ids)
        return TokenSequence(context_ids=prompt_ids, ids=ids, positions=range(len(ids)))

    def _fault(self, sequence: TokenSequence) -> tuple[SignalStatus | None, str]:
        """Why a sequence cannot be scored, as a status and in words. None if it can."""
        context, ids, positions = sequence.context_ids, sequence.ids, sequence.positions
        if not positions:
            return SignalStatus.NO_TOKENS, "there is no token to score" if ids else "it is empty"
        if not context and positions[0] == 0:
            return SignalStatus.NO_TOKENS, "the prompt has no tokens, so nothing predicts the first one"
        unknown = [token for token in (*context, *ids) if not 0 <= token < self._vocab]
        if unknown:
            where = f"token id {unknown[0]} lies outside the model's vocabulary of {self._vocab}"
            return SignalStatus.UNKNOWN_TOKENS, f"{where}. Do the tokenizer and the model belong together?"
        length = len(context) + positions[-1] + 1
        if self._context is not None and length > self._context:
            return SignalStatus.TOO_LONG, f"{length} tokens with the prompt, but the model's context is {self._context}"
        return None, ""
