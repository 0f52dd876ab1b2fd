"""Mean gradient-activation vectors of token sequences, from passes of slime's `forward_only` or a captured pass."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gar.core import Signal
from gar.errors import ModelError
from gar.integrations.megatron import HeadInputs, check_head, head_means, watch_head
from gar.sequences import TokenSequence
from gar.settings import SignalSettings

_PREFIX = "gar_"
_REPLAY_STAGE = "ROUTING_REPLAY_STAGE"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredSequence:
    """A sequence to pass through the model: its tokens, the length of its prompt, and its scored tokens."""

    tokens: Tensor
    """int64 [tokens], on the model's device."""
    prompt_length: int
    positions: Tensor
    """Ascending positions in `tokens`, int64, same device. Empty for a dummy."""
    keep_fraction: float = 1.0

    @classmethod
    def cut(cls, sequence: TokenSequence, device: Any, *, keep_fraction: float = 1.0) -> "ScoredSequence":
        """A sequence up to its last scored token: the model is causal, so later tokens change no vector."""
        cut = replace(sequence, ids=sequence.ids[: sequence.positions[-1] + 1])
        return cls.whole(cut, device, keep_fraction=keep_fraction)

    @classmethod
    def whole(cls, sequence: TokenSequence, device: Any, *, keep_fraction: float = 1.0) -> "ScoredSequence":
        """A sequence with all its tokens. Of these perhaps none is scored."""
        prompt = len(sequence.context_ids)
        tokens = torch.tensor([*sequence.context_ids, *sequence.ids], dtype=torch.long, device=device)
        positions = torch.tensor(sequence.positions, dtype=torch.long, device=device) + prompt
        return cls(tokens=tokens, prompt_length=prompt, positions=positions, keep_fraction=keep_fraction)


def sequence_means(
    args: Any, chunks: list[Any], sequences: Sequence[ScoredSequence], signal: SignalSettings, *, device: Any
) -> Tensor | None:
    """Mean vector of each sequence, float32 [sequences, hidden], on the last pipeline stage. None on the others.

    A collective: all ranks call it together, each data-parallel rank with its own sequences or none. Tensor, pipeline
    and context ranks have the same ones. All make the same number of passes.
    """
    from megatron.core import mpu
    from slime.backends.megatron_utils.data import DataIterator
    from slime.backends.megatron_utils.model import forward_only

    is_last = mpu.is_pipeline_last_stage(ignore_virtual=True)
    if is_last:
        check_head(chunks)
    capacity = signal.max_batch_tokens
    if args.use_dynamic_batch_size:  # over all context ranks
        each = args.log_probs_max_tokens_per_gpu or args.max_tokens_per_gpu
        capacity = each * mpu.get_context_parallel_world_size()
    batches = pack([len(sequence.tokens) for sequence in sequences], capacity)
    num_batches = _common_number(len(batches), chunks, mpu, device)
    order = [i for batch in batches for i in batch]
    dummy = ScoredSequence.whole(TokenSequence(context_ids=[0], ids=[0], positions=()), device)
    in_order = [sequences[i] for i in order] + [dummy] * (num_batches - len(batches))
    places = iter(range(len(in_order)))
    sizes = [len(batch) for batch in batches] + [1] * (num_batches - len(batches))
    schedule = [[next(places) for _ in range(size)] for size in sizes]
    data = {
        "tokens": [sequence.tokens for sequence in in_order],
        "total_lengths": [len(sequence.tokens) for sequence in in_order],
        "response_lengths": [len(sequence.tokens) - sequence.prompt_length for sequence in in_order],
        "loss_masks": [torch.ones_like(sequence.tokens[sequence.prompt_length :]) for sequence in in_order],
    }
    latest: deque[HeadInputs] = deque(maxlen=1)
    scheduled = ([in_order[i] for i in batch] for batch in schedule)

    def read(logits: Tensor, *, args: Any, **_: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """slime calls it after each micro-batch, in order, on the last pipeline stage."""
        return logits.new_empty(0), {"means": list(_micro_batch_means(args, latest.pop(), next(scheduled), signal))}

    stop = watch_head(chunks, latest, spare_logits=True)
    try:
        with _without_routing_replay():
            iterators = [DataIterator(data, schedule) for _ in chunks]
            stored = forward_only(read, args, chunks, iterators, [num_batches], store_prefix=_PREFIX)
    finally:
        stop()
    if not is_last:
        return None
    means = torch.stack(stored[f"{_PREFIX}means"])
    return means.new_empty(len(sequences), means.shape[1]).index_copy_(
        0, torch.tensor(order, dtype=torch.long, device=means.device), means[: len(order)]
    )


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices of sequences in micro-batches of at most `capacity` tokens. A longer one gets a separate batch."""
    batches: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fitting = next((b for b, left in enumerate(room) if lengths[i] <= left), len(batches))
        if fitting == len(batches):
            batches.append([])
            room.append(capacity)
        batches[fitting].append(i)
        room[fitting] -= lengths[i]
    return batches


def captured_means(
    args: Any,
    seen: Sequence[HeadInputs],
    schedule: Sequence[Sequence[int]],
    sequences: Sequence[ScoredSequence],
    signal: SignalSettings,
) -> Tensor:
    """Mean vector of each sequence, float32 [sequences, hidden], from a captured pass, 0 without a scored token.

    `seen` comes from `captured_pass`, `schedule` from slime: the indices of the sequences of each micro-batch.
    `sequences` holds all of the pass, in full. A sequence that needs no vector has no positions.
    """
    if len(seen) != len(schedule):
        raise ModelError(
            f"slime's log-probability pass had {len(seen)} micro-batches, but its schedule has {len(schedule)}. Does "
            "another hook run extra passes in between?",
            code="other-schedule",
        )
    means = torch.zeros(len(sequences), seen[0].hidden.shape[1], device=seen[0].weight.device)
    for inputs, places in zip(seen, schedule, strict=True):
        batch = [sequences[i] for i in places]
        if any(len(sequence.positions) for sequence in batch):
            means[list(places)] = _micro_batch_means(args, inputs, batch, signal)
    return means


def _micro_batch_means(
    args: Any, inputs: HeadInputs, batch: Sequence[ScoredSequence], signal: SignalSettings
) -> Tensor:
    """Mean vectors of the sequences of one micro-batch, from the inputs of the head."""
    rows, targets, index = [], [], []
    for i, (sequence, row, position) in enumerate(_response_rows(args, batch, len(inputs.token_ids))):
        scored = torch.isin(position, sequence.positions)
        rows.append(row[scored])
        targets.append(sequence.tokens[position[scored]])
        index.append(torch.full_like(targets[-1], i))
        if not torch.equal(inputs.token_ids[rows[-1]], sequence.tokens[position[scored] - 1]):
            raise ModelError(
                "a micro-batch differs from slime's schedule in its tokens, so that hidden states would be assigned "
                "to the wrong response. Does this version of slime pack differently?",
                code="other-schedule",
            )
    keep = torch.tensor([sequence.keep_fraction for sequence in batch], device=inputs.weight.device)
    return head_means(
        inputs,
        torch.cat(rows),
        (torch.cat(targets), torch.cat(index), len(batch)),
        Signal(signal.kind, signal.activation_threshold, keep),
        temperature=signal.temperature,
        vocab_size=args.vocab_size,
    )


def _response_rows(
    args: Any, batch: Sequence[ScoredSequence], num_rows: int
) -> Iterator[tuple[ScoredSequence, Tensor, Tensor]]:
    """Each sequence of a micro-batch, the rows on this rank that predict its response, and the predicted positions."""
    from slime.backends.megatron_utils.loss import get_responses

    device = batch[0].tokens.device
    lengths = [len(sequence.tokens) for sequence in batch]
    aligned = get_responses(  # slime's own, given row numbers for logits (exact up to 2^24) and positions for tokens
        torch.arange(num_rows, dtype=torch.float32, device=device)[None, :, None],
        args=args,
        unconcat_tokens=[torch.arange(length, device=device) for length in lengths],
        total_lengths=lengths,
        response_lengths=[len(sequence.tokens) - sequence.prompt_length for sequence in batch],
        apply_temperature=False,
    )
    for sequence, (row, position) in zip(batch, aligned, strict=True):
        yield sequence, row[:, 0].long(), position


def _common_number(number: int, chunks: list[Any], mpu: Any, device: Any) -> int:
    """The most micro-batches of any data-parallel rank, at least one, in whole groups of the virtual pipeline."""
    most = torch.tensor([max(number, 1)], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=mpu.get_data_parallel_group())
    multiple = 1
    if len(chunks) > 1:
        from megatron.core.utils import get_model_config

        multiple = get_model_config(chunks[0]).microbatch_group_size_per_vp_stage
    return -(-int(most) // multiple) * multiple


@contextmanager
def _without_routing_replay() -> Iterator[None]:
    """Route tokens to experts afresh in our passes, and leave slime's recorded routing unchanged."""
    stage = os.environ.get(_REPLAY_STAGE)
    if stage is None:
        yield
        return
    os.environ[_REPLAY_STAGE] = "fallthrough"
    try:
        yield
    finally:
        os.environ[_REPLAY_STAGE] = stage
