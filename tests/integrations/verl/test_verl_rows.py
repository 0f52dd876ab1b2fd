"""A hand-made batch in verl's fields, from rows to rewards; and where a micro-batch's scored tokens lie. No verl."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gar.config import make_config
from gar.core import Signal
from gar.errors import DataError
from gar.integrations.verl.exchange import requested_signal, rows_of_rank, scored_rows, signal_request, table_rows
from gar.integrations.verl.settings import read_shaping
from gar.models.embedded import load_embedded
from gar.sequences import SequenceReader
from gar.settings import SignalSettings
from gar.step import Row, Shaped, Step
from tests.support.errors import raises
from tests.support.rewards import gradient_aligned_rewards

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


class Table:
    """The path that verl's trainer takes, on given rows."""

    def __init__(self, given: list[dict[str, Any]] = ROWS, *, context: int | None = None):
        config = make_config({"verify": {"format": "none"}})
        shaping = read_shaping(config)
        reader = SequenceReader.from_settings(TOKENIZER, shaping.signal, config.verify, context=context)
        self.rows: list[Row] = table_rows(given, reader, max_response_tokens=9)
        self.step = Step(shaping, self.rows)

    def shape(self, means: Tensor, anchor_means: Tensor) -> Shaped:
        return self.step.finish(torch.cat([means[self.step.members], anchor_means]))


def vectors(count: int, seed: int) -> Tensor:
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))


def test_reward_table_needs_only_responses_that_may_earn_something():
    """Right, in form, with an anchor and a token, beside another such one in the group."""
    plan = Table().step
    assert plan.members == [2, 5, 9, 11, 13]
    assert len(plan.anchors) == 2  # of two groups, each once
    assert plan.anchors[0].context_ids == PROMPT
    assert len(plan.sequences) == len(plan.keep_fractions) == 7


def test_reward_table_shapes_rewards_as_the_core_does():
    table = Table()
    means, anchors = vectors(len(ROWS), 1), vectors(2, 2)
    shaped, metrics = table.shape(means, anchors), table.shape(means, anchors).metrics()
    alignment = torch.full((len(ROWS),), torch.nan)
    for i in table.step.members:
        anchor = anchors[0 if ROWS[i]["uid"] == "all" else 1]
        alignment[i] = torch.nn.functional.cosine_similarity(means[i].double(), anchor.double(), dim=0)
    names, facts = list(dict.fromkeys(r["uid"] for r in ROWS)), [member.facts for member in table.rows]
    expected = gradient_aligned_rewards(
        torch.tensor([fact.verified and fact.well_formatted for fact in facts]),
        alignment.double(),
        torch.tensor([0.0 if fact.well_formatted else -0.6 for fact in facts]).double(),
        torch.tensor([names.index(r["uid"]) for r in ROWS]),
        scored=alignment.isfinite(),
    )
    torch.testing.assert_close(shaped.rewards, expected, rtol=0, atol=1e-6)
    assert shaped.rewards[[0, 6]].tolist() == [0.0, 0.0]  # all wrong: nothing to say
    assert shaped.rewards[3].item() == pytest.approx(-0.6)  # right in bad form: the penalty alone
    assert metrics["gar/scored_fraction"] == pytest.approx(5 / 14)
    assert metrics["gar/no_anchor_fraction"] == pytest.approx(2 / 14)
    assert metrics["gar/no_signal_fraction"] == pytest.approx(1 / 14)
    assert metrics["verify/wrong_fraction"] == pytest.approx(3 / 14)
    zero_std = metrics["gar/zero_std_group_fraction_outcome"], metrics["gar/zero_std_group_fraction_shaped"]
    assert zero_std == pytest.approx((4 / 6, 2 / 6))  # "all" and "mute" are rescued


def test_text_of_a_model_with_a_processor_is_read_and_images_are_an_error():
    for inputs in ({}, {"pixel_values": None, "image_grid_thw": None}):
        assert Table([{**row("all", "29"), "multi_modal_inputs": inputs}]).rows
        images = {**inputs, "pixel_values": torch.zeros(4, 6)}
        with raises(DataError, "not-text"):
            Table([row("all", "29"), {**row("all", "29"), "multi_modal_inputs": images}])


def test_what_lies_beyond_the_context_is_counted_and_not_scored():
    """The prompt has 8 tokens. One response and one group's anchor reach beyond 16."""
    long = "28+3-2=29+0"
    given = [
        row("a", "28"), row("a", "29"), row("a", long),
        row("b", "28", anchors=(long,)), row("b", "29", anchors=(long,)),
    ]  # fmt: skip
    assert len(PROMPT) == 8
    everything, cut = Table(given), Table(given, context=16)
    assert everything.step.members == [0, 1, 2, 3, 4]
    assert cut.step.members == []  # the anchor of "a" has 9 tokens
    wider = Table([{**r, "extra_info": {"anchors": ["29"]}} if r["uid"] == "a" else r for r in given], context=16)
    assert wider.step.members == [0, 1]
    metrics = wider.shape(vectors(5, 1), vectors(1, 2)).metrics()
    assert metrics["gar/too_long_fraction"] == pytest.approx(1 / 5)
    assert metrics["gar/anchor_too_long_fraction"] == pytest.approx(2 / 5)
    assert metrics["gar/no_anchor_fraction"] == pytest.approx(2 / 5)
    assert metrics["gar/truncated_fraction"] == pytest.approx(1 / 5)


def jagged(*rows: list[int]) -> Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(r) for r in rows], layout=torch.jagged)


def test_scored_rows_in_packed_and_padded_places():
    ids = jagged([10, 11, 12, 13, 14], [20, 21, 22], [30, 31, 32, 33])
    mask = jagged([1, 0, 1], [1], [1, 1])
    starts, ends = torch.tensor([2, 0, 2]), torch.tensor([5, 0, 4])
    packed = scored_rows(ids, mask, starts, ends, width=None)
    assert packed.positions.tolist() == [1, 3, 9, 10]  # one before the token, counted over all sequences
    assert packed.target_ids.tolist() == [12, 14, 32, 33]  # 13 is not the policy's
    assert packed.response_index.tolist() == [0, 0, 2, 2]
    padded = scored_rows(ids, mask, starts, ends, width=5)
    assert padded.positions.tolist() == [1, 3, 11, 12]


def test_rows_of_all_ranks_are_all_rows_once():
    ids = jagged([10, 11, 12, 13, 14], [20, 21, 22])
    rows = scored_rows(ids, jagged([1, 1, 1], [1, 1]), torch.tensor([2, 1]), torch.tensor([5, 3]), width=None)
    parts = [rows_of_rank(rows, rank=rank, length=4) for rank in range(2)]  # 8 tokens over two ranks
    for rank, part in enumerate(parts):
        assert bool(((part.positions >= 0) & (part.positions < 4)).all())
        whole = (part.positions + 4 * rank).tolist()
        assert whole == [p for p in rows.positions.tolist() if p // 4 == rank]
    assert torch.equal(torch.cat([part.target_ids for part in parts]), rows.target_ids)


def test_a_request_says_all_that_the_workers_must_know_of_the_signal():
    settings = SignalSettings(kind="gradient", temperature=2.0, activation_threshold=0.0)
    assert requested_signal(signal_request(settings, keep_fraction=0.5)) == (Signal("gradient", 0.0, 0.5), 2.0)
