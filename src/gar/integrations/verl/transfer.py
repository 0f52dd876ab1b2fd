"""Convert between verl's TransferQueue or workers and the responses of a step: names, shapes and padding."""

# pyright: reportMissingImports=false
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from torch import Tensor
from verl.utils import tensordict_utils as tu

from gar.errors import ConfigError, DataError
from gar.integrations.verl.exchange import END, MEANS, START, read_responses
from gar.reader import Reader
from gar.response import Response, TokenSequence

OUTCOME_SCORES = "gar_outcome_scores"
"""Field with verl's `rm_scores` before shaping."""

_FIELDS = ["uid", "prompts", "responses", "response_mask", "extra_info", "extra_fields", "multi_modal_inputs"]

_ROPE_ROWS = 4
"""Rows of verl's position ids for a model with several rotary axes: the text's, then three axes'."""


def fetch_responses(keys: Sequence[str], partition: str, reader: Reader, **limits: Any) -> list[Response]:
    """The responses under `keys` of verl's rollout, as `read_responses` with its further arguments."""
    several = [key for key in keys if not key.endswith("_0")]  # uid_session_output
    if several:
        raise DataError(
            f"the agent loop left several outputs of one session, such as {several[0]}: GAR scores one response. Use "
            "an agent loop that returns one output."
        )
    data = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=_FIELDS)
    outputs = []
    for i in range(len(keys)):
        entries = {name: data[name][i] for name in _FIELDS}
        outputs.append({name: getattr(entry, "data", entry) for name, entry in entries.items()})  # wrapped or not
    return read_responses(outputs, reader, **limits)


def span_fields(sequences: Sequence[TokenSequence | None]) -> dict[str, Tensor]:
    """`START` and `END` of each sequence. An empty span for None."""
    spans = [(0, 0) if sequence is None else _span(sequence) for sequence in sequences]
    return dict(zip((START, END), torch.tensor(spans).T.contiguous(), strict=True))


def _span(sequence: TokenSequence) -> tuple[int, int]:
    first = len(sequence.context_ids)
    return first + sequence.positions[0], first + sequence.positions[-1] + 1


def write_spans(keys: Sequence[str], partition: str, needed: Mapping[str, TokenSequence]) -> None:
    """Mark the tokens to score: the needed sequences without verl's padding."""
    fields = tu.get_tensordict(span_fields([needed.get(key) for key in keys]))
    tq.kv_batch_put(keys=list(keys), partition_id=partition, fields=fields)


def anchor_batch(
    sequences: Sequence[TokenSequence], multiple: int, *, several_position_rows: bool = False, **settings: Any
) -> Any:
    """Anchors as a batch for verl's `compute_log_prob`.

    Sequences without scored tokens fill the batch up to a multiple of `multiple`. With `several_position_rows`,
    position ids have a row per axis, all of which count tokens.
    """
    fillers = -len(sequences) % multiple
    rows = [sequence.cut() for sequence in (*sequences, *[sequences[0]] * fillers)]
    ids = [torch.tensor([*row.context_ids, *row.ids]) for row in rows]
    positions = [torch.arange(len(row)) for row in ids]
    if several_position_rows:
        positions = [row.expand(_ROPE_ROWS, -1) for row in positions]
    fields = {
        "input_ids": _jagged(ids),
        "position_ids": tu.nested_tensor_from_tensor_list(positions),
        "loss_mask": _jagged([torch.ones(len(row.ids), dtype=torch.long) for row in rows]),
        **span_fields([*sequences, *[None] * fillers]),
    }
    return tu.get_tensordict(fields, settings)


def read_means(values: Tensor) -> Tensor:
    """The workers' jagged `MEANS` as [sequences, hidden]."""
    return torch.stack(list(values.unbind(0)))


def write_rewards(keys: Sequence[str], partition: str, rewards: Tensor) -> None:
    """Put rewards on the last token that the policy wrote of each response, for verl's advantages. Keep the old values.

    verl's own are on the last token. If that is an environment's, verl's REINFORCE++ never counts them.
    """
    fields = ["rm_scores", "response_mask"]
    before = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=fields)
    shaped = [torch.zeros_like(scores) for scores in before["rm_scores"].unbind(0)]
    for scores, mask, reward in zip(shaped, before["response_mask"].unbind(0), rewards.tolist(), strict=True):
        own = mask.nonzero()[:, 0]
        scores[own[-1] if len(own) else -1] = reward
    values = tu.get_tensordict({"rm_scores": _jagged(shaped), OUTCOME_SCORES: before["rm_scores"]})
    tq.kv_batch_put(keys=list(keys), partition_id=partition, fields=values)


def clear_advantages(keys: Sequence[str], partition: str) -> None:
    """Set verl's advantages and returns of these responses to 0."""
    names = ["advantages", "returns"]
    before = tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=names)
    zeros = {name: _jagged([torch.zeros_like(row) for row in before[name].unbind(0)]) for name in names}
    tq.kv_batch_put(keys=list(keys), partition_id=partition, fields=tu.get_tensordict(zeros))


def _jagged(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def require_means(output: Any) -> Tensor:
    """The means in what the workers returned. A `ConfigError` if they run verl's own engine."""
    if MEANS not in output:
        raise ConfigError(
            "the workers returned no vectors: they run verl's own engine. Set actor_rollout_ref.model.external_lib="
            "gar.integrations.verl.register (GAR's engine serves CUDA devices by NVIDIA)."
        )
    return read_means(output[MEANS])
