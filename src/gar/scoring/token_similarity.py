"""Alignments from the vectors of single tokens (`signal.similarity` match, ordered, sum, kernel), a group at a time.

    anchors of a group             -> vectors of their tokens, held
      some of its responses        -> vectors of their tokens
        each response, each anchor -> likeness, and each token's share in it; the best anchor counts

The vectors held at one time take at most half of `signal.memory_bytes`; computations with them take the other half.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gar.core.arguments import Budget, ScoredTokens, Signal
from gar.core.similarity import (
    BYTES_PER_PAIR,
    ResponseTokens,
    cosine_sum,
    kernel_similarity,
    token_means,
    token_vectors,
)
from gar.core.token_match import ordered_match, ordered_match_shares, token_match
from gar.errors import ConfigError
from gar.models.families import ModelParts
from gar.scoring.forward import batches_by_length, head_of, num_forwards, scored_tokens, signal_of
from gar.settings import SignalSettings
from gar.shaping import AnchoredGroup, VectorPlan
from gar.spans import TokenSequence

_COPIES = {"match": 2, "ordered": 4, "sum": 7, "kernel": 5}
"""Vectors per token that exist at one time: unscaled, at unit length, and the extra ones that a similarity needs."""
_WITH_HIDDEN = ("sum", "kernel")
"""Similarities that read gradients and hidden states separately; the others compare u_t."""


class TokenAlignments(NamedTuple):
    """Result of `token_alignments`, by row of the plan.

    Attributes:
        alignment: Float64 [rows] on the CPU: the best likeness, NaN where there is none.
        means: Mean vector of each needed response, float32 [rows, hidden]; its norm is recorded.
        shares: Share of each scored token in the alignment, for responses that have one; empty unless asked for.
    """

    alignment: Tensor
    means: Tensor
    shares: dict[int, list[float]]


class _TokenVectors(NamedTuple):
    """Vectors of the tokens of some sequences, and for some similarities their hidden states."""

    tokens: ResponseTokens
    hidden: Tensor | None = None

    def only(self, sequence: int) -> "_TokenVectors":
        is_member = self.tokens.response_index == sequence
        index = torch.zeros(int(is_member.sum()), dtype=torch.long, device=is_member.device)
        hidden = None if self.hidden is None else self.hidden[is_member]
        return _TokenVectors(ResponseTokens(self.tokens.vectors[is_member], index, 1), hidden)

    def means(self) -> Tensor:
        """Mean of u_t, float64 [sequences, hidden]."""
        tokens = self.tokens
        return token_means(tokens if self.hidden is None else tokens._replace(vectors=tokens.vectors * self.hidden))


@torch.no_grad()
def token_alignments(
    parts: ModelParts,
    plan: VectorPlan,
    settings: SignalSettings,
    *,
    hidden: Mapping[int, Tensor] | None = None,
    shares: bool = False,
) -> TokenAlignments:
    """Likeness of the needed responses to the anchors of their groups, token by token.

    Args:
        parts: From `gar.models.families.find_parts`, with the head gathered.
        plan: Which responses and anchors.
        settings: `similarity` is not "mean".
        hidden: Known hidden states of the scored tokens of responses, [tokens, hidden], by row. The other responses
            get a forward pass here, as in `signal_means`.
        shares: Also give shares of tokens; the kernel has none.

    Raises:
        ConfigError: A response and its anchors do not fit into the memory limit.
        ValueError: As `signal_means`.
    """
    result = TokenAlignments(
        torch.full((plan.num_rows,), torch.nan, dtype=torch.float64),
        torch.zeros(plan.num_rows, parts.width, device=parts.device),
        {},
    )
    for group in plan.groups:
        room = _room(settings, parts.width, group)
        anchors = _anchor_vectors(parts, group.anchors, settings)
        for members, tokens in _batches(parts, group, settings, room, hidden or {}):
            vectors = _vectors(parts, tokens, settings)
            values, token_shares = _best_anchor(vectors, anchors, settings, shares=shares)
            result.alignment[members] = values.double().cpu()
            result.means[members] = vectors.means().float()
            if shares:
                split = token_shares.split([len(group.responses[i].positions) for i in members])
                scored = zip(members, values.isfinite().tolist(), split, strict=True)
                result.shares.update({i: part.tolist() for i, has_value, part in scored if has_value})
    return result


def num_token_forwards(plan: VectorPlan, settings: SignalSettings, width: int, hidden: Mapping[int, Tensor]) -> int:
    """Forward passes that `token_alignments` makes."""
    count = 0
    for group in plan.groups:
        missing = [sequence for i, sequence in group.responses.items() if i not in hidden]
        batch_tokens = min(settings.max_batch_tokens, _room(settings, width, group))
        count += num_forwards(group.anchors, settings.max_batch_tokens) + num_forwards(missing, batch_tokens)
    return count


def _room(settings: SignalSettings, width: int, group: AnchoredGroup) -> int:
    """Number of response tokens whose vectors fit into memory beside those of the group's anchors.

    Raises:
        ConfigError: The longest response does not fit, or its table of cosines with an anchor, in their order.
    """
    per_token = 2 * 4 * width * _COPIES[settings.similarity]  # the other half of the memory is for products
    held, table = "the vectors", 0
    num_anchor_tokens = sum(len(anchor.positions) for anchor in group.anchors)
    longest = max(len(sequence.positions) for sequence in group.responses.values())
    if settings.similarity == "ordered":
        held = "the vectors and a table of cosines"
        table = 2 * BYTES_PER_PAIR * longest * max(len(anchor.positions) for anchor in group.anchors)
    needed = max(table, per_token * (longest + num_anchor_tokens))
    if settings.memory_bytes < needed:
        raise ConfigError(
            f"signal.memory_bytes is {settings.memory_bytes}, but signal.similarity '{settings.similarity}' holds "
            f"{held} of {longest} tokens of a response and {num_anchor_tokens} of its anchors, of width {width}, "
            f"expected at least {needed}. Or lower signal.limit_tokens."
        )
    return settings.memory_bytes // per_token - num_anchor_tokens


def _anchor_vectors(
    parts: ModelParts, anchors: Sequence[TokenSequence], settings: SignalSettings
) -> list[_TokenVectors]:
    by_place: dict[int, _TokenVectors] = {}
    for members, tokens in scored_tokens(parts, anchors, settings.max_batch_tokens):
        vectors = _vectors(parts, tokens, settings)
        by_place |= {i: vectors.only(place) for place, i in enumerate(members)}
    return list(by_place.values())


def _batches(
    parts: ModelParts, group: AnchoredGroup, settings: SignalSettings, room: int, hidden: Mapping[int, Tensor]
) -> Iterator[tuple[list[int], ScoredTokens]]:
    """Yield row indices of responses, and their tokens: first those with known hidden states."""
    known = [i for i in group.responses if i in hidden]
    for batch in batches_by_length([len(hidden[i]) for i in known], room):
        members = [known[j] for j in batch]
        targets = [torch.tensor(group.responses[i].scored_ids, device=parts.device) for i in members]
        index = [torch.full_like(ids, place) for place, ids in enumerate(targets)]
        states = torch.cat([hidden[i] for i in members])
        yield members, ScoredTokens(states, torch.cat(targets), torch.cat(index), len(members))
    missing = [i for i in group.responses if i not in hidden]
    sequences = [group.responses[i] for i in missing]
    for batch, tokens in scored_tokens(parts, sequences, min(settings.max_batch_tokens, room)):
        yield [missing[j] for j in batch], tokens


def _vectors(parts: ModelParts, tokens: ScoredTokens, settings: SignalSettings) -> _TokenVectors:
    with_hidden = settings.similarity in _WITH_HIDDEN
    vectors = token_vectors(
        tokens,
        head_of(parts, settings),
        Signal("gradient") if with_hidden else signal_of(settings),
        Budget(settings.memory_bytes // 2, precision=settings.precision),
    )
    of_responses = ResponseTokens(vectors, tokens.response_index, tokens.num_responses)
    return _TokenVectors(of_responses, tokens.hidden.to(vectors.dtype) if with_hidden else None)


def _best_anchor(
    responses: _TokenVectors, anchors: Sequence[_TokenVectors], settings: SignalSettings, *, shares: bool
) -> tuple[Tensor, Tensor]:
    """The best likeness of each response, NaN where there is none, and the share of each token in it."""
    pairs = [_compare(responses, anchor, settings, shares=shares) for anchor in anchors]
    values, token_shares = (torch.stack(tensors) for tensors in zip(*pairs, strict=True))
    best = values.nan_to_num(nan=-torch.inf).argmax(0)
    return values.gather(0, best[None])[0], token_shares.gather(0, best[responses.tokens.response_index][None])[0]


def _compare(
    responses: _TokenVectors, anchor: _TokenVectors, settings: SignalSettings, *, shares: bool
) -> tuple[Tensor, Tensor]:
    """Likeness of each response to one anchor, NaN where there is none, and each token's share; zeros unless asked."""
    tokens, others, memory_bytes = responses.tokens, anchor.tokens.vectors, settings.memory_bytes // 2
    nothing = torch.zeros(len(tokens.vectors), device=others.device)
    if settings.similarity in _WITH_HIDDEN:
        assert responses.hidden is not None
        assert anchor.hidden is not None
        if settings.similarity == "sum":
            return cosine_sum(tokens, responses.hidden, others, anchor.hidden)
        values = kernel_similarity(tokens, responses.hidden, others, anchor.hidden, memory_bytes=memory_bytes)
        return values, nothing
    if settings.similarity == "ordered":
        ordered = ordered_match(tokens, others, memory_bytes=memory_bytes)
        token_shares = ordered_match_shares(tokens, others, memory_bytes=memory_bytes) if shares else nothing
        return ordered.recall.where(ordered.scored, torch.nan), token_shares
    match = token_match(tokens, others, memory_bytes=memory_bytes)
    values, token_shares = {
        "recall": (match.recall, match.recall_shares),
        "precision": (match.precision, match.precision_shares),
        "f": (match.f_score, (match.recall_shares + match.precision_shares) / 2),
    }[settings.match]
    return values.where(match.scored, torch.nan), token_shares
