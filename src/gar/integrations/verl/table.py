"""The reward table of one step, on verl's driver: from responses and verdicts to rewards, for all ranks at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gar.config import RunConfig
from gar.core import best_alignment_scores, unit_rows
from gar.integrations.metrics import step_metrics
from gar.methods import METHODS, ScoredBatch, ShapedRewards, eligible_responses
from gar.shaping import responses_to_score
from gar.spans import (
    SpanRule,
    TokenPieces,
    TokenSequence,
    anchor_sequence,
    ends_in_thinking_tag,
    scored_positions,
    token_pieces,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseRow:
    """A response as verl's rollout and GAR's reward manager left it.

    Example: ResponseRow(group="0b3e", prompt_ids=[5, 6], response_ids=[9, 7, 8], mask=[1, 1, 1],
        anchors=("<think> 3 + 4 = 7 </think>",), status="ok", verified=True, well_formatted=True)
    """

    group: str
    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    """0 for tokens that the policy did not write."""
    anchors: tuple[str, ...]
    status: str
    verified: bool
    well_formatted: bool


class SequenceReader:
    """Which tokens of responses and anchors are scored.

    Args:
        tokenizer: The policy's.
        config: From `read_settings`.
    """

    def __init__(self, tokenizer: Any, config: RunConfig):
        self._tokenizer = tokenizer
        self._pieces: TokenPieces = token_pieces(tokenizer)
        tags = config.verify.tags.as_tags()
        self._rule = SpanRule.from_settings(config.signal, format=config.verify.format, tags=tags, tokenizer=tokenizer)

    def response(self, row: ResponseRow) -> TokenSequence:
        """A response after its prompt."""
        prefilled = ends_in_thinking_tag(row.prompt_ids, self._pieces, self._rule.tags)
        positions = scored_positions(row.response_ids, self._pieces, self._rule, prefilled=prefilled, mask=row.mask)
        return TokenSequence(context_ids=row.prompt_ids, ids=row.response_ids, positions=positions)

    def anchors(self, row: ResponseRow) -> list[TokenSequence]:
        """The anchors of the response's problem that have something to score, after the same prompt."""
        found = [
            anchor_sequence(row.prompt_ids, text, self._tokenizer, self._rule, pieces=self._pieces)
            for text in row.anchors
        ]
        return [anchor for anchor in found if anchor.positions]


class RewardTable:
    """Responses of all ranks, without verl's padding rows, on their way to a reward.

    Args:
        rows: In any order; groups may be spread.
        reader: Finds the scored tokens.
        config: From `read_settings`.
    """

    def __init__(self, rows: Sequence[ResponseRow], reader: SequenceReader, config: RunConfig):
        self._rows = rows
        self._config = config
        self._method = METHODS[config.method]
        numbers = {group: i for i, group in enumerate(dict.fromkeys(row.group for row in rows))}
        self._groups = torch.tensor([numbers[row.group] for row in rows])
        self.sequences = [reader.response(row) for row in rows]
        first = {row.group: row for row in reversed(rows)}
        self._anchors = {numbers[group]: reader.anchors(row) for group, row in first.items()}

    @cached_property
    def needed(self) -> Tensor:
        """Which responses need a vector."""
        pairs = zip(self.sequences, self._groups.tolist(), strict=True)
        can_score = torch.tensor([bool(sequence.positions and self._anchors[group]) for sequence, group in pairs])
        return responses_to_score(self._method, self._config.reward, self._facts(self._unknown()), can_score)

    @cached_property
    def anchor_sequences(self) -> list[TokenSequence]:
        """The anchors to run through the model, each once."""
        return [anchor for group in self._anchored_groups for anchor in self._anchors[group]]

    @property
    def _anchored_groups(self) -> list[int]:
        return sorted(set(self._groups[self.needed].tolist()))

    def shape(self, means: Tensor, anchor_means: Tensor) -> tuple[ShapedRewards, dict[str, float]]:
        """Rewards of all responses, and what to log about them.

        Args:
            means: Mean vectors of all responses, [responses, hidden]; only the `needed` ones are read.
            anchor_means: Of `anchor_sequences`, in their order.
        """
        alignment = self._unknown()
        if self.anchor_sequences:
            groups = [group for group in self._anchored_groups for _ in self._anchors[group]]
            best = best_alignment_scores(
                unit_rows(means[self.needed]), self._groups[self.needed], unit_rows(anchor_means), torch.tensor(groups)
            )
            alignment[self.needed] = torch.where(best.scored, best.scores.double(), torch.nan)
        facts = self._facts(alignment)
        shaped = self._method.shape(facts, self._config.reward)
        return shaped, step_metrics(
            facts,
            eligible_responses(facts, self._config.reward),
            shaped,
            statuses=[row.status for row in self._rows],
            num_anchors=[len(self._anchors[group]) for group in self._groups.tolist()],
            num_scored_tokens=[len(sequence.positions) for sequence in self.sequences],
        )

    def _unknown(self) -> Tensor:
        return torch.full((len(self._rows),), torch.nan, dtype=torch.float64)

    def _facts(self, alignment: Tensor) -> ScoredBatch:
        return ScoredBatch(
            verified=torch.tensor([row.verified for row in self._rows]),
            well_formatted=torch.tensor([row.well_formatted for row in self._rows]),
            group_index=self._groups,
            alignment=alignment,
            scored=alignment.isfinite(),
        )
