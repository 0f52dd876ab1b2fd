"""Mean gradient-activation vectors of token sequences, from passes of slime's `forward_only` or a captured pass."""

import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gar.core import Signal
from gar.errors import ModelError
from gar.integrations.megatron import HeadInputs, check_head, head_means, watch_head
from gar.response import TokenSequence
from gar.settings import SignalSettings

_PREFIX = "gar_"
_REPLAY_STAGE = "ROUTING_REPLAY_STAGE"


_DUMMY = TokenSequence(context_ids=[0], ids=[0], positions=())
"""Fills the micro-batches of a rank that has fewer than another."""


def sequence_means(
    args: Any,
    chunks: list[Any],
    responses: Sequence[TokenSequence],
    anchors: Sequence[TokenSequence],
    signal: SignalSettings,
    *,
    device: Any,
) -> tuple[Tensor | None, Tensor | None]:
    """Mean vectors of responses and of anchors, float32 [..., hidden], on the last pipeline stage. None on the others.

    A collective: all ranks call it together, each data-parallel rank with its own sequences or none. Tensor, pipeline
    and context ranks have the same ones. All make the same number of passes.
    """
    from megatron.core import mpu
    from slime.backends.megatron_utils.data import DataIterator
    from slime.backends.megatron_utils.model import forward_only

    is_last = mpu.is_pipeline_last_stage(ignore_virtual=True)
    if is_last:
        check_head(chunks)
    # 1. Pack the sequences into micro-batches, as many as on the rank with the most.
    capacity = signal.max_batch_tokens
    if args.use_dynamic_batch_size:  # over all context ranks
        each = args.log_probs_max_tokens_per_gpu or args.max_tokens_per_gpu
        capacity = each * mpu.get_context_parallel_world_size()
    cut = [sequence.cut() for sequence in (*responses, *anchors)]
    keep_fractions = [1.0] * len(responses) + [signal.expert_keep_fraction] * len(anchors)
    batches = pack([sequence.num_tokens for sequence in cut], capacity)
    num_batches = _common_number(len(batches), chunks, mpu, device)
    # 2. List them in the order of their passes, as slime's data and its schedule.
    order = [i for batch in batches for i in batch]
    num_dummies, places = num_batches - len(batches), itertools.count()
    in_order = [cut[i] for i in order] + [_DUMMY] * num_dummies
    keep = [keep_fractions[i] for i in order] + [1.0] * num_dummies
    schedule = [[next(places) for _ in batch] for batch in [*batches, *[[0]] * num_dummies]]
    data = {
        "tokens": [_tokens(sequence, device) for sequence in in_order],
        "total_lengths": [sequence.num_tokens for sequence in in_order],
        "response_lengths": [len(sequence.ids) for sequence in in_order],
        "loss_masks": [torch.ones(len(sequence.ids), dtype=torch.long, device=device) for sequence in in_order],
    }
    # 3. Form the means after each pass, from what the head was given.
    latest: deque[HeadInputs] = deque(maxlen=1)
    scheduled = (([in_order[i] for i in batch], [keep[i] for i in batch]) for batch in schedule)

    def read(logits: Tensor, *, args: Any, **_: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """slime calls it after each micro-batch, in order, on the last pipeline stage."""
        return logits.new_empty(0), {"means": list(_micro_batch_means(args, latest.pop(), *next(scheduled), signal))}

    stop = watch_head(chunks, latest, spare_logits=True)
    try:
        with _without_routing_replay():
            iterators = [DataIterator(data, schedule) for _ in chunks]
            stored = forward_only(read, args, chunks, iterators, [num_batches], store_prefix=_PREFIX)
    finally:
        stop()
    if not is_last:
        return None, None
    # 4. Put the means back into the order of the sequences, without the dummies.
    stacked = torch.stack(stored[f"{_PREFIX}means"])
    means = stacked[torch.tensor(order).argsort()]
    return means[: len(responses)], means[len(responses) :]


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
    sequences: Sequence[TokenSequence],
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
            means[list(places)] = _micro_batch_means(args, inputs, batch, [1.0] * len(batch), signal)
    return means


def _micro_batch_means(
    args: Any,
    inputs: HeadInputs,
    batch: Sequence[TokenSequence],
    keep_fractions: Sequence[float],
    signal: SignalSettings,
) -> Tensor:
    """Mean vectors of the sequences of one micro-batch, from the inputs of the head."""
    rows, targets, index, device = [], [], [], inputs.token_ids.device
    for i, (row, position) in enumerate(_response_rows(args, batch, len(inputs.token_ids), device)):
        sequence, tokens = batch[i], _tokens(batch[i], device)
        positions = torch.tensor(sequence.positions, dtype=torch.long, device=device) + len(sequence.context_ids)
        scored = torch.isin(position, positions)
        rows.append(row[scored])
        targets.append(tokens[position[scored]])
        index.append(torch.full_like(targets[-1], i))
        if not torch.equal(inputs.token_ids[rows[-1]], tokens[position[scored] - 1]):
            raise ModelError(
                "a micro-batch differs from slime's schedule in its tokens, so that hidden states would be assigned "
                "to the wrong response. Does this version of slime pack differently?",
                code="other-schedule",
            )
    keep = torch.tensor(keep_fractions, device=inputs.weight.device)
    return head_means(
        inputs,
        torch.cat(rows),
        (torch.cat(targets), torch.cat(index), len(batch)),
        Signal(signal.kind, signal.activation_threshold, keep),
        temperature=signal.temperature,
        vocab_size=args.vocab_size,
    )


def _tokens(sequence: TokenSequence, device: Any) -> Tensor:
    return torch.tensor([*sequence.context_ids, *sequence.ids], dtype=torch.long, device=device)


def _response_rows(
    args: Any, batch: Sequence[TokenSequence], num_rows: int, device: Any
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each sequence of a micro-batch, the rows on this rank that predict its response, and what they predict."""
    from slime.backends.megatron_utils.loss import get_responses

    lengths = [sequence.num_tokens for sequence in batch]
    aligned = get_responses(  # slime's own, given row numbers for logits (exact up to 2^24) and positions for tokens
        torch.arange(num_rows, dtype=torch.float32, device=device)[None, :, None],
        args=args,
        unconcat_tokens=[torch.arange(length, device=device) for length in lengths],
        total_lengths=lengths,
        response_lengths=[len(sequence.ids) for sequence in batch],
        apply_temperature=False,
    )
    for row, positions in aligned:
        yield row[:, 0].long(), positions


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
