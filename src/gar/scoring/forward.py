"""Compute gradient-activation vectors of token sequences: forward passes in batches, then `gar.core`."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gar.core import Budget, Head, ScoredTokens, Signal, alignment_shares, response_means
from gar.models.families import ModelParts, evaluation_mode
from gar.models.rope import FIXED, RopeLengths
from gar.response import TokenSequence
from gar.settings import SignalSettings


def batches_by_length(lengths: Sequence[int], max_batch_tokens: int, *, rope: RopeLengths = FIXED) -> list[list[int]]:
    """Group indices into batches of at most `max_batch_tokens` padded tokens, longest first.

    A single longer row is a batch. No row is shorter than half the longest of its batch, so less than half of a batch
    is padding. All rows of a batch have the same rotary frequencies (`ModelParts.rope`).
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: list[list[int]] = []
    for i in order:
        longest = lengths[batches[-1][0]] if batches else 0
        fits = batches and longest * (len(batches[-1]) + 1) <= max_batch_tokens and longest <= 2 * lengths[i]
        if fits and rope.state(longest) == rope.state(lengths[i]):
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def _passed_ids(sequence: TokenSequence, rope: RopeLengths) -> list[int]:
    """The sequence up to the token that predicts its last scored token. All of it if a cut would change frequencies."""
    num_passed = len(sequence.context_ids) + sequence.positions[-1]
    if rope.state(num_passed) != rope.state(sequence.num_tokens):
        num_passed = sequence.num_tokens
    return [*sequence.context_ids, *sequence.ids][:num_passed]


@torch.no_grad()
def signal_means(
    parts: ModelParts,
    sequences: Sequence[TokenSequence],
    settings: SignalSettings,
    *,
    keep_fractions: Sequence[float] | None = None,
    most: Callable[[int], int] = int,
) -> Tensor:
    """Mean gradient-activation vector of each sequence, [sequences, hidden], float32.

    The backbone runs in evaluation mode without gradients, on each sequence up to its last scored token (exact for a
    causal model), padded on the right, in batches of at most `settings.max_batch_tokens`.

    Args:
        parts: From `gar.models.families.find_parts`.
        sequences: Sequences to score. One without scored positions gets a zero row and no forward pass.
        settings: Signal kind and thresholds.
        keep_fractions: p_f of each sequence. None means 1.
        most: Takes this rank's number of passes and returns the largest of all ranks, so that all ranks run equally
            many.

    Raises:
        ValueError: The first token of a sequence is scored but has no context.
    """
    means = torch.zeros(len(sequences), parts.weight.shape[1], device=parts.weight.device)
    for members, hidden in _hidden_batches(parts, sequences, settings.max_batch_tokens, most):
        batch = [sequences[i] for i in members]
        keep = None if keep_fractions is None else [keep_fractions[i] for i in members]
        starts = [len(sequence.context_ids) for sequence in batch]
        means[members] = means_from_hidden(parts, hidden, batch, starts, settings, keep_fractions=keep)
    return means


def step_means(
    parts: ModelParts,
    responses: Sequence[TokenSequence],
    anchors: Sequence[TokenSequence],
    settings: SignalSettings,
    *,
    most: Callable[[int], int] = int,
) -> tuple[Tensor, Tensor]:
    """Compute `signal_means` of responses and anchors in shared forward passes."""
    keep_fractions = [1.0] * len(responses) + [settings.expert_keep_fraction] * len(anchors)
    means = signal_means(parts, [*responses, *anchors], settings, keep_fractions=keep_fractions, most=most)
    return means[: len(responses)], means[len(responses) :]


@torch.no_grad()
def token_shares(
    parts: ModelParts, sequences: Sequence[TokenSequence], anchors: Tensor, settings: SignalSettings
) -> list[list[float]]:
    """Split the alignment of each sequence with its row of `anchors` (unit rows) into shares of its scored tokens."""
    shares: list[list[float]] = [[] for _ in sequences]
    for members, hidden in _hidden_batches(parts, sequences, settings.max_batch_tokens, int):
        batch = [sequences[i] for i in members]
        values = alignment_shares(
            _scored_tokens(hidden, batch, [len(sequence.context_ids) for sequence in batch]),
            _head(parts, settings),
            anchors[members],
            _signal(settings),
            _budget(settings),
        ).split([len(sequence.positions) for sequence in batch])
        for i, part in zip(members, values, strict=True):
            shares[i] = part.tolist()
    return shares


def _hidden_batches(
    parts: ModelParts, sequences: Sequence[TokenSequence], max_batch_tokens: int, most: Callable[[int], int]
) -> Iterator[tuple[list[int], Tensor]]:
    """Run forward passes over the sequences with scored positions. Yields their indices and hidden states."""
    _check_predecessors(sequences, [len(sequence.context_ids) for sequence in sequences])
    wanted = [i for i, sequence in enumerate(sequences) if sequence.positions]
    rope = parts.rope
    rows = [_passed_ids(sequences[i], rope) for i in wanted]
    device = parts.weight.device
    batches = batches_by_length(list(map(len, rows)), max_batch_tokens, rope=rope)
    num_idle = most(len(batches)) - len(batches)
    with evaluation_mode(parts.backbone):
        if rope.grows_from is not None:
            # Frequencies of a long pass stay until a short one. So make a short pass first, and the longest last.
            parts.backbone(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=False)
            batches.reverse()
        for batch in batches:
            members = [wanted[j] for j in batch]
            input_ids = pad_sequence([torch.tensor(rows[j]) for j in batch], batch_first=True)
            # No attention mask: under causal attention no token sees the padding on its right.
            output = parts.backbone(input_ids=input_ids.to(device), use_cache=False)
            yield members, output.last_hidden_state
        for _ in range(num_idle):  # another rank makes more passes
            parts.backbone(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=False)


def means_from_hidden(
    parts: ModelParts,
    hidden: Tensor,
    sequences: Sequence[TokenSequence],
    starts: Sequence[int],
    settings: SignalSettings,
    *,
    keep_fractions: Sequence[float] | None = None,
) -> Tensor:
    """Compute mean vectors from hidden states, [sequences, hidden], float32.

    `hidden` is [sequences, columns, hidden] with any padding. `starts` holds the column of each sequence's first token
    in `ids`. For `keep_fractions` see `signal_means`.
    """
    _check_predecessors(sequences, starts)
    keep_fraction = 1.0 if keep_fractions is None else torch.tensor(keep_fractions, device=hidden.device)
    tokens, head = _scored_tokens(hidden, sequences, starts), _head(parts, settings)
    return response_means(tokens, head, _signal(settings, keep_fraction), budget=_budget(settings))


def _scored_tokens(hidden: Tensor, sequences: Sequence[TokenSequence], starts: Sequence[int]) -> ScoredTokens:
    rows, columns, targets = [], [], []
    for row, (sequence, start) in enumerate(zip(sequences, starts, strict=True)):
        rows += [row] * len(sequence.positions)
        columns += [start + position - 1 for position in sequence.positions]
        targets += [sequence.ids[position] for position in sequence.positions]
    index, columns, targets = torch.tensor([rows, columns, targets], dtype=torch.long, device=hidden.device)
    return ScoredTokens(hidden[index, columns], targets, index, len(sequences))


def _head(parts: ModelParts, settings: SignalSettings) -> Head:
    return Head(parts.weight, parts.bias, settings.temperature, parts.logit_scale, parts.logit_softcap)


def _signal(settings: SignalSettings, keep_fraction: float | Tensor = 1.0) -> Signal:
    return Signal(settings.kind, settings.activation_threshold, keep_fraction)


def _budget(settings: SignalSettings) -> Budget:
    return Budget(settings.memory_bytes, precision=settings.precision)


def _check_predecessors(sequences: Sequence[TokenSequence], starts: Sequence[int]) -> None:
    for i, (sequence, start) in enumerate(zip(sequences, starts, strict=True)):
        if sequence.positions and start + sequence.positions[0] < 1:
            raise ValueError(
                f"sequence {i} has no context, but its first token is scored. A token is predicted from the one before "
                "it. Was the prompt lost?"
            )
