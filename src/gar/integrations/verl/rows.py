"""Convert verl's response fields to rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from gar.errors import ConfigError, DataError
from gar.integrations.verl.settings import REWARD_MANAGER
from gar.sequences import AnchorSequences, SequenceReader
from gar.step import Row, read_row
from gar.types import Status, Verdict


def table_rows(
    responses: Sequence[Mapping[str, Any]], reader: SequenceReader, *, max_response_tokens: int
) -> list[Row]:
    """Rows from verl's fields of each response. Groups are numbered in the order in which they come up.

    Raises:
        ConfigError: The responses come without verdicts.
        DataError: A response comes with images, sound or video.
    """
    groups: dict[str, tuple[int, AnchorSequences]] = {}
    rows = []
    for fields in responses:
        _refuse_media(fields["multi_modal_inputs"])
        prompt, ids = fields["prompts"].tolist(), fields["responses"].tolist()
        if fields["uid"] not in groups:
            texts = fields["extra_info"].get("anchors")
            groups[fields["uid"]] = len(groups), reader.anchors(prompt, [] if texts is None else texts)
        number, anchors = groups[fields["uid"]]
        sequence = reader.response(prompt, ids, mask=fields["response_mask"].tolist())
        verdict = _verdict(fields["extra_fields"].get("reward_extra_info", {}))
        truncated = len(ids) >= max_response_tokens
        rows.append(read_row(reader, verdict, sequence, anchors, group_index=number, truncated=truncated))
    return rows


def _refuse_media(inputs: Mapping[str, Any]) -> None:
    """Beside text alone a processor leaves nothing, or keys without a value."""
    given = sorted(name for name, value in inputs.items() if value is not None)
    if given:
        raise DataError(
            f"a response comes with {', '.join(given)} from the model's processor, and anchors have text alone. Leave "
            "images, sound and video out of the data. A processor that adds inputs to text alone is not supported."
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
