"""What the tokens of sampled responses say: their text, where they think, whether they end."""

from collections.abc import Sequence
from typing import Any

from gar.integrations.trl.rollouts import RolloutBatch
from gar.spans import (
    SpanRule,
    TokenPieces,
    TokenSequence,
    ends_in_thinking_tag,
    scored_positions,
    without_trailing_special,
)


class TokenReader:
    """Reads token ids as they are, never by tokenising text again.

    Args:
        tokenizer: The policy's.
        rule: Which tokens are scored.
        pieces: Of this tokenizer.
    """

    def __init__(self, tokenizer: Any, rule: SpanRule, pieces: TokenPieces):
        self._tokenizer = tokenizer
        self._rule = rule
        self._pieces = pieces

    def read(
        self,
        batch: RolloutBatch,
        prompt_ids: Sequence[list[int]],
        completion_ids: Sequence[list[int]],
        token_mask: Any,
        *,
        endings: Sequence[Any],
    ) -> None:
        """Add to the batch what the responses say, in its order.

        Args:
            batch: Without tokens so far.
            prompt_ids: As the model read them.
            completion_ids: As the model wrote them.
            token_mask: Per response, 0 for tokens that the policy did not write; None where it wrote all.
            endings: Tokens that end a response; one that ends otherwise was cut.
        """
        for i, (prompt, ids) in enumerate(zip(prompt_ids, completion_ids, strict=True)):
            prefilled = ends_in_thinking_tag(prompt, self._pieces, self._rule.tags)
            mask = None if token_mask is None else token_mask[i]
            positions = scored_positions(ids, self._pieces, self._rule, prefilled=prefilled, mask=mask)
            batch.prefilled.append(prefilled)
            batch.sequences.append(TokenSequence(context_ids=prompt, ids=ids, positions=positions))
            body = without_trailing_special(ids, self._rule.special_ids)
            text = self._tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            batch.texts.append(str(text))
            batch.truncated.append(not ids or ids[-1] not in endings)
