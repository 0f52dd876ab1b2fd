"""The reward table against a hand-made batch, and where a micro-batch's scored tokens lie. Neither needs verl."""

import pytest
import torch
from torch import Tensor

from gar.config import RunConfig, make_config
from gar.core import gradient_aligned_rewards
from gar.integrations.verl.exchange import own_rows, scored_rows
from gar.integrations.verl.table import ResponseRow, RewardTable, SequenceReader
from gar.models.embedded import load_embedded

_, TOKENIZER = load_embedded()
PROMPT = TOKENIZER.encode("3+4*7-2=")


def row(
    group: str, text: str, *, right: bool = True, form: bool = True, anchors: tuple = ("28+3-2=29",)
) -> ResponseRow:
    ids = TOKENIZER.encode(text)
    return ResponseRow(
        group=group, prompt_ids=PROMPT, response_ids=ids, mask=[1] * len(ids), anchors=anchors,
        status="ok" if right else "wrong", verified=right, well_formatted=form,
    )  # fmt: skip


ROWS = [
    row("wrong", "28", right=False), row("one", "29"), row("all", "28+1=29"), row("form", "29", form=False),
    row("none", "29", anchors=()), row("all", "29"), row("wrong", "1", right=False), row("one", "2", right=False),
    row("none", "28+1", anchors=()), row("all", "3+26=29"), row("form", "29"), row("mute", "29"), row("mute", ""),
    row("mute", "28+1"),
]  # fmt: skip


def make_table(rows: list[ResponseRow] = ROWS, **reward: object) -> RewardTable:
    config = make_config({"method": "gar-grpo", "verify": {"format": "none"}, "reward": reward})
    return RewardTable(rows, SequenceReader(TOKENIZER, config), config)


def vectors(count: int, seed: int) -> Tensor:
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))


def test_reward_table_needs_only_responses_that_may_earn_something():
    """Right, in form, with an anchor and a token, beside another such one in the group."""
    table = make_table()
    assert table.needed.nonzero()[:, 0].tolist() == [2, 5, 9, 11, 13]
    assert len(table.anchor_sequences) == 2  # of two groups, each once
    assert table.anchor_sequences[0].context_ids == PROMPT


def test_reward_table_needs_a_lone_response_where_its_own_cosine_counts():
    assert make_table(singleton="absolute").needed.nonzero()[:, 0].tolist() == [1, 2, 5, 9, 10, 11, 13]


@pytest.mark.parametrize("clip", [True, False])
def test_reward_table_pays_a_lone_response_its_own_cosine_without_centring(clip: bool):
    table = make_table(centre=False, clip=clip)
    assert table.needed.nonzero()[:, 0].tolist() == [1, 2, 5, 9, 10, 11, 13]
    means, anchors = vectors(len(ROWS), 1), vectors(4, 2)
    shaped, _ = table.shape(means, anchors)
    cosine = float(torch.nn.functional.cosine_similarity(means[1].double(), anchors[0].double(), dim=0))
    assert abs(cosine) > 0.1
    # 1e-6: the unit rows are float32.
    assert float(shaped.bonuses[1]) == pytest.approx(0.5 * (max(0.0, cosine) if clip else cosine), abs=1e-6)


def test_reward_table_shapes_rewards_as_the_core_does():
    table = make_table()
    means, anchors = vectors(len(ROWS), 1), vectors(2, 2)
    shaped, metrics = table.shape(means, anchors)
    alignment = torch.full((len(ROWS),), torch.nan)
    for i in table.needed.nonzero()[:, 0].tolist():
        anchor = anchors[0 if ROWS[i].group == "all" else 1]
        alignment[i] = torch.nn.functional.cosine_similarity(means[i].double(), anchor.double(), dim=0)
    names = list(dict.fromkeys(r.group for r in ROWS))
    expected = gradient_aligned_rewards(
        torch.tensor([r.verified and r.well_formatted for r in ROWS]),
        alignment.double(),
        torch.tensor([0.0 if r.well_formatted else -0.6 for r in ROWS]).double(),
        torch.tensor([names.index(r.group) for r in ROWS]),
        scored=alignment.isfinite(),
    )
    torch.testing.assert_close(shaped.rewards, expected, rtol=0, atol=1e-6)
    assert shaped.rewards[[0, 6]].tolist() == [0.0, 0.0]  # all wrong: nothing to say
    assert shaped.rewards[3].item() == pytest.approx(-0.6)  # right in bad form: the penalty alone
    assert metrics["gar/scored_fraction"] == pytest.approx(5 / 14)
    assert metrics["gar/no_anchor_fraction"] == pytest.approx(2 / 14)
    assert metrics["gar/no_signal_fraction"] == pytest.approx(1 / 14)
    assert metrics["verify/wrong_fraction"] == pytest.approx(3 / 14)
    silent = metrics["gar/silent_group_fraction_outcome"], metrics["gar/silent_group_fraction_shaped"]
    assert silent == pytest.approx((4 / 6, 2 / 6))  # "all" and "mute" are rescued


def test_resumed_job_gives_the_rewards_of_one_that_went_on():
    """Nothing of GAR is in verl's checkpoints: rewards follow from the rows, the vectors and the settings."""
    config = make_config({"method": "gar-grpo", "verify": {"format": "none"}})
    used = SequenceReader(TOKENIZER, config)
    RewardTable(ROWS[::-1], used, config).shape(vectors(len(ROWS), 3), vectors(2, 4))  # the step before
    went_on, resumed = (RewardTable(ROWS, reader, config) for reader in (used, SequenceReader(TOKENIZER, config)))
    assert resumed.needed.tolist() == went_on.needed.tolist()
    assert resumed.anchor_sequences == went_on.anchor_sequences
    found, expected = (table.shape(vectors(len(ROWS), 1), vectors(2, 2)) for table in (resumed, went_on))
    assert torch.equal(found[0].rewards, expected[0].rewards)
    assert found[1] == expected[1]
    assert len(set(found[0].rewards.tolist())) > 3


def test_reward_table_of_a_method_without_alignment_asks_for_no_vector():
    config = make_config({"method": "grpo", "verify": {"format": "none"}})
    table = RewardTable(ROWS, SequenceReader(TOKENIZER, config), config)
    assert not bool(table.needed.any())
    assert table.anchor_sequences == []
    shaped, _ = table.shape(torch.zeros(0, 0), torch.zeros(0, 0))
    assert shaped.rewards[[1, 7, 3]].tolist() == pytest.approx([1.0, 0.0, -0.6])


def test_reward_table_counts_a_vector_that_is_zero_as_no_signal():
    table = make_table()
    means = vectors(len(ROWS), 1)
    means[[2, 5]] = 0.0
    shaped, metrics = table.shape(means, vectors(2, 2))
    assert metrics["gar/scored_fraction"] == pytest.approx(3 / 14)
    assert shaped.rewards[[2, 5, 9]].tolist() == [1.0, 1.0, 1.0]  # one scored member of three: no bonus


def test_reader_scores_the_thinking_part_without_tokens_of_others():
    config = RunConfig()
    text = "<think>3+4</think><answer>7</answer>"
    given = row("a", text)
    reader = SequenceReader(TOKENIZER, config)
    assert TOKENIZER.decode(reader.response(given).scored_ids).replace(" ", "") == "3+4"
    masked = [0 if i == reader.response(given).positions[1] else 1 for i in range(len(given.mask))]
    other = ResponseRow(**{name: getattr(given, name) for name in given.__slots__} | {"mask": masked})
    assert len(reader.response(other).positions) == len(reader.response(given).positions) - 1


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


def test_own_rows_of_all_ranks_are_all_rows_once():
    ids = jagged([10, 11, 12, 13, 14], [20, 21, 22])
    rows = scored_rows(ids, jagged([1, 1, 1], [1, 1]), torch.tensor([2, 1]), torch.tensor([5, 3]), width=None)
    parts = [own_rows(rows, rank=rank, length=4) for rank in range(2)]  # 8 tokens over two ranks
    for rank, part in enumerate(parts):
        assert bool(((part.positions >= 0) & (part.positions < 4)).all())
        whole = (part.positions + 4 * rank).tolist()
        assert whole == [p for p in rows.positions.tolist() if p // 4 == rank]
    assert torch.equal(torch.cat([part.target_ids for part in parts]), rows.target_ids)
