"""What the driver asks of the workers, and where they find it in a micro-batch: names of fields, and rows of tokens."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gar.core import Signal
from gar.errors import ModelError
from gar.settings import SignalSettings

REQUEST = "gar_request"
"""Batch-wide entry that asks for means; a batch without it passes in silence."""

START, END = "gar_start", "gar_end"
"""First scored token of each sequence and the one after the last, int64 [sequences]; equal for none."""

MEANS = "gar_means"
"""What the workers return: mean gradient-activation vectors, float32 [sequences, hidden]."""


OWN_MASK = "gar_own_mask"
"""On the way to the reward worker: 1 for the tokens of a response that the policy wrote, 0 for a tool's."""


def signal_request(settings: SignalSettings, *, keep_fraction: float = 1.0) -> dict[str, Any]:
    """Which vectors to form, as plain values, which travel through TransferQueue.

    Args:
        settings: Of the run.
        keep_fraction: Share of tokens that counts: the anchors'.
    """
    return {
        "signal": settings.kind,
        "activation_threshold": settings.activation_threshold,
        "keep_fraction": keep_fraction,
        "temperature": settings.temperature,
    }


def requested_signal(request: Mapping[str, Any]) -> tuple[Signal, float]:
    """The signal and the temperature that `signal_request` has noted."""
    signal = Signal(request["signal"], request["activation_threshold"], request["keep_fraction"])
    return signal, request["temperature"]


def check_logits(logits: Tensor, raw: Tensor | None) -> None:
    """What the model returns must be what its head made: no soft-cap, no scale, and a head that was called.

    Args:
        logits: The model's, [rows, tokens, vocab].
        raw: `[:1, :1]` of what the head made.

    Raises:
        ModelError: It is not.
    """
    if raw is None:
        raise ModelError("the model returned logits without calling its LM head, where GAR reads hidden states")
    if not torch.equal(logits[:1, :1], raw):
        raise ModelError(
            "the model's logits are not its LM head's: it scales or soft-caps them, or they are not finite. GAR "
            "does not know such a head under verl; under TRL it does."
        )


class ScoredRows(NamedTuple):
    """The scored tokens of a micro-batch, for `response_means`."""

    positions: Tensor
    target_ids: Tensor
    response_index: Tensor


def scored_rows(input_ids: Tensor, loss_mask: Tensor, starts: Tensor, ends: Tensor, *, width: int | None) -> ScoredRows:
    """Where the head sees the scored tokens: the one at place s of a sequence is scored by the hidden state at s - 1.

    Args:
        input_ids: Jagged [sequences, tokens], prompt and response.
        loss_mask: Jagged [sequences, response tokens], 0 for tokens that the policy did not write.
        starts: Place of the first scored token of each sequence.
        ends: Place after the last.
        width: Row length where sequences are padded on the right; None where they are packed one after the other.
    """
    positions, targets, owners = [], [], []
    begins = input_ids.offsets().tolist()  # pyright: ignore[reportAttributeAccessIssue]: torch does not declare it
    masks = loss_mask.unbind()
    for i, (ids, start, end) in enumerate(zip(input_ids.unbind(), starts.tolist(), ends.tolist(), strict=True)):
        first_response = len(ids) - len(masks[i])
        places = torch.arange(start, end, device=ids.device)
        places = places[masks[i][start - first_response : end - first_response].bool()] if end > start else places
        positions.append(places - 1 + (begins[i] if width is None else i * width))
        targets.append(ids[places])
        owners.append(torch.full_like(places, i))
    return ScoredRows(torch.cat(positions), torch.cat(targets), torch.cat(owners))


def rows_of_rank(rows: ScoredRows, *, rank: int, length: int) -> ScoredRows:
    """Those of one rank where each of several holds `length` tokens in turn (Ulysses sequence parallelism)."""
    first = rank * length
    of_rank = (rows.positions >= first) & (rows.positions < first + length)
    return ScoredRows(rows.positions[of_rank] - first, rows.target_ids[of_rank], rows.response_index[of_rank])
