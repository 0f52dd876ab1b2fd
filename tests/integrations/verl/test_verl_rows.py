"""A batch in verl's fields as rows, and the places of a micro-batch's scored tokens, without verl."""

from typing import Any

import torch
from torch import Tensor

from gar.config import make_config
from gar.core import Signal
from gar.errors import DataError
from gar.integrations.verl.exchange import read_responses, requested_signal, rows_of_rank, scored_rows, signal_request
from gar.integrations.verl.settings import read_shaping
from gar.models.embedded import load_embedded
from gar.reader import Reader
from gar.response import Response
from gar.settings import SignalSettings
from gar.step import Step
from tests.support.errors import raises

_, TOKENIZER = load_embedded()
PROMPT = TOKENIZER.encode("3+4*7-2=")


def row(
    group: str, text: str, *, right: bool = True, form: bool = True, anchors: tuple = ("28+3-2=29",)
) -> dict[str, Any]:
    ids = torch.tensor(TOKENIZER.encode(text), dtype=torch.long)
    verdict = {"status": "ok" if right else "wrong", "verified": right, "well_formatted": form}
    return {
        "uid": group, "prompts": torch.tensor(PROMPT), "responses": ids, "response_mask": torch.ones_like(ids),
        "extra_info": {"anchors": list(anchors)}, "extra_fields": {"reward_extra_info": verdict},
        "multi_modal_inputs": {},
    }  # fmt: skip


ROWS = [
    row("wrong", "28", right=False), row("one", "29"), row("all", "28+1=29"), row("form", "29", form=False),
    row("none", "29", anchors=()), row("all", "29"), row("wrong", "1", right=False), row("one", "2", right=False),
    row("none", "28+1", anchors=()), row("all", "3+26=29"), row("form", "29"), row("mute", "29"), row("mute", ""),
    row("mute", "28+1"),
]  # fmt: skip


def rows_of(given: list[dict[str, Any]], *, context: int | None = None) -> list[Response]:
    """The path that verl's trainer takes."""
    config = make_config({"verify": {"format": "none"}})
    reader = Reader.from_settings(TOKENIZER, read_shaping(config).signal, config.verify, context=context)
    return read_responses(given, reader, max_response_tokens=9, end_ids=[TOKENIZER.eos_token_id])


def test_responses_have_verdicts_sequences_and_anchors():
    rows = rows_of(ROWS)
    assert [row.group_index for row in rows] == [0, 1, 2, 3, 4, 2, 0, 1, 4, 2, 3, 5, 5, 5]  # as they come
    assert [i for i, row in enumerate(rows) if not row.verdict.verified] == [0, 6, 7]
    assert [i for i, row in enumerate(rows) if not row.verdict.well_formatted] == [3]
    assert [i for i, row in enumerate(rows) if not row.anchors.usable] == [4, 8]
    assert [i for i, row in enumerate(rows) if not row.num_scored_tokens] == [12]
    assert rows[2].anchors is rows[5].anchors
    assert rows[2].anchors.usable[0].context_ids == PROMPT
    step = Step(read_shaping(make_config({})), rows)
    assert step.members == [2, 5, 9, 11, 13]  # right, in form, with an anchor and a token, beside another such one
    assert (len(step.sequences), len(step.anchors)) == (5, 2)  # each anchor once


def test_text_of_a_model_with_a_processor_is_read_and_images_are_an_error():
    text, images = ({**row("all", "29"), "multi_modal_inputs": {"x": value}} for value in (None, torch.zeros(4, 6)))
    assert rows_of([text])
    with raises(DataError, "not-text"):
        rows_of([text, images])


def test_what_lies_beyond_the_context_or_verls_limit_is_noted():
    """The prompt has 8 tokens. One response and one group's anchor reach beyond 16."""
    long = "28+3-2=29+0"
    given = [row("a", "28"), row("a", long), row("b", "28", anchors=(long,))]
    given[0]["extra_info"] = {"anchors": ["29"]}
    read = rows_of(given, context=16)
    assert [bool(one.fault) for one in read] == [False, True, False]
    assert [one.truncated for one in read] == [False, True, False]
    assert [len(one.anchors.faults) for one in read] == [0, 0, 1]
    assert not any(one.fault for one in rows_of(given))


def test_a_response_that_ends_exactly_at_the_limit_is_not_cut_off():
    ends, cut = row("a", "28+3-2=2"), row("a", "28+3-2=29")
    ends["responses"] = torch.tensor([*ends["responses"].tolist(), TOKENIZER.eos_token_id])
    ends["response_mask"] = torch.ones_like(ends["responses"])
    assert len(ends["responses"]) == len(cut["responses"]) == 9
    assert [one.truncated for one in rows_of([ends, cut])] == [False, True]


def jagged(*rows: list[int]) -> Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(r) for r in rows], layout=torch.jagged)


def test_scored_rows_in_packed_and_padded_places():
    ids = jagged([10, 11, 12, 13, 14], [20, 21, 22], [30, 31, 32, 33])
    mask = jagged([1, 0, 1], [1], [0, 1])
    starts, ends = torch.tensor([2, 0, 3]), torch.tensor([5, 0, 4])  # the last span begins later than its response
    packed = scored_rows(ids, mask, starts, ends, width=None)
    assert packed.positions.tolist() == [1, 3, 10]  # one before the token, counted over all sequences
    assert packed.target_ids.tolist() == [12, 14, 33]  # 13 is not the policy's
    assert packed.response_index.tolist() == [0, 0, 2]
    padded = scored_rows(ids, mask, starts, ends, width=5)
    assert padded.positions.tolist() == [1, 3, 12]


def test_rows_of_all_ranks_are_all_rows_once():
    ids = jagged([10, 11, 12, 13, 14], [20, 21, 22])
    rows = scored_rows(ids, jagged([1, 1, 1], [1, 1]), torch.tensor([2, 1]), torch.tensor([5, 3]), width=None)
    parts = [rows_of_rank(rows, rank=rank, length=4) for rank in range(2)]  # 8 tokens over two ranks
    for rank, part in enumerate(parts):
        assert bool(((part.positions >= 0) & (part.positions < 4)).all())
        whole = (part.positions + 4 * rank).tolist()
        assert whole == [p for p in rows.positions.tolist() if p // 4 == rank]
    assert torch.equal(torch.cat([part.target_ids for part in parts]), rows.target_ids)


def test_a_request_holds_the_signal():
    settings = SignalSettings(kind="gradient", temperature=2.0, activation_threshold=0.0)
    assert requested_signal(signal_request(settings, keep_fraction=0.5)) == (Signal("gradient", 0.0, 0.5), 2.0)
