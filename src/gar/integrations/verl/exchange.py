"""Convert what verl and its workers exchange: responses, and requests for the vectors of a micro-batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gar.core import Signal
from gar.errors import ConfigError, DataError, ModelError
from gar.integrations.verl.settings import REWARD_MANAGER
from gar.reader import Reader
from gar.response import Anchors, Response
from gar.settings import SignalSettings
from gar.types import Status, Verdict

REQUEST = "gar_request"
"""Batch-wide entry that asks for means."""

START, END = "gar_start", "gar_end"
"""First scored token of each sequence and the one after the last, int64 [sequences], equal for none."""

MEANS = "gar_means"
"""The workers' output: mean gradient-activation vectors, float32 [sequences, hidden]."""

OWN_MASK = "gar_own_mask"
"""Sent to the reward worker: 1 for the tokens of a response that the policy wrote, 0 for a tool's."""


def signal_request(settings: SignalSettings, *, keep_fraction: float = 1.0) -> dict[str, Any]:
    """Which vectors to compute, as plain values for TransferQueue."""
    return {
        "signal": settings.kind,
        "activation_threshold": settings.activation_threshold,
        "keep_fraction": keep_fraction,
        "temperature": settings.temperature,
    }


def requested_signal(request: Mapping[str, Any]) -> tuple[Signal, float]:
    """The signal and the temperature of a `signal_request`."""
    signal = Signal(request["signal"], request["activation_threshold"], request["keep_fraction"])
    return signal, request["temperature"]


def check_logits(logits: Tensor, raw: Tensor | None) -> None:
    """Check that the model returns its head's logits unchanged (`raw` is their `[:1, :1]`): no soft-cap, no scale."""
    if raw is None:
        raise ModelError("the model returned logits without calling its LM head, where GAR reads hidden states")
    if not torch.equal(logits[:1, :1], raw):
        raise ModelError(
            "the model's logits are not its LM head's: it scales or soft-caps them, or they are not finite. GAR "
            "does not know such a head under verl. Under TRL it does.",
            code="scaled-logits",
        )


class ScoredRows(NamedTuple):
    """The scored tokens of a micro-batch, for `response_means`."""

    positions: Tensor
    target_ids: Tensor
    response_index: Tensor


def scored_rows(input_ids: Tensor, loss_mask: Tensor, starts: Tensor, ends: Tensor, *, width: int | None) -> ScoredRows:
    """The scored tokens, and the places of the hidden states that predict them: one before each.

    `input_ids` are jagged [sequences, tokens], `loss_mask` jagged [sequences, response tokens], 0 for tokens that the
    policy did not write. `width` is the row length of padded sequences, None if they are packed.
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
    """The rows on one rank of Ulysses sequence parallelism, where each rank holds `length` tokens."""
    first = rank * length
    of_rank = (rows.positions >= first) & (rows.positions < first + length)
    return ScoredRows(rows.positions[of_rank] - first, rows.target_ids[of_rank], rows.response_index[of_rank])


def read_responses(
    outputs: Sequence[Mapping[str, Any]],
    reader: Reader,
    *,
    max_response_tokens: int,
    end_ids: Sequence[int],
    shuffled: bool = False,
) -> list[Response]:
    """Responses from verl's fields of each, with verdicts and anchors. Groups are numbered in order of appearance.

    `shuffled`: the anchors are another problem's (`Reader.carried_anchors`).
    """
    groups: dict[str, tuple[int, Anchors]] = {}
    responses = []
    for fields in outputs:
        _refuse_media(fields["multi_modal_inputs"])
        prompt, ids = fields["prompts"].tolist(), fields["responses"].tolist()
        if fields["uid"] not in groups:
            found = reader.carried_anchors(prompt, fields["extra_info"], shuffled=shuffled)
            groups[fields["uid"]] = len(groups), found
        number, anchors = groups[fields["uid"]]
        truncated = len(ids) >= max_response_tokens and ids[-1] not in end_ids
        mask = fields["response_mask"].tolist()
        read = reader.read(prompt, ids, mask=mask, anchors=anchors, group_index=number, truncated=truncated)
        verdict = _verdict(fields["extra_fields"].get("reward_extra_info", {}))
        responses.append(replace(read, verdict=verdict))
    return responses


def _refuse_media(inputs: Mapping[str, Any]) -> None:
    """Reject inputs with values from a processor. For text alone it adds none."""
    given = sorted(name for name, value in inputs.items() if value is not None)
    if given:
        raise DataError(
            f"a response comes with {', '.join(given)} from the model's processor, and expert solutions are text. "
            "Leave images, sound and video out of the data. A processor that adds inputs to text is not supported.",
            code="not-text",
        )


def _verdict(info: Mapping[str, Any]) -> Verdict:
    if "well_formatted" not in info:
        raise ConfigError(
            f"a response comes without a verdict, with {sorted(info)}: is reward.reward_manager.name="
            f"{REWARD_MANAGER} set, and did the reward workers import gar.integrations.verl.register "
            "(VERL_USE_EXTERNAL_MODULES)?"
        )
    verified = bool(info["verified"])
    return Verdict(
        status=Status(info["status"]),
        grade=float(verified),
        verified=verified,
        well_formatted=bool(info["well_formatted"]),
    )
