"""Alignments from single tokens against the core on autograd's token vectors, whichever passes and memory they take."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gar.core.similarity import ResponseTokens, cosine_sum, kernel_similarity
from gar.core.token_match import ordered_match, token_match
from gar.errors import ConfigError
from gar.models.families import find_parts
from gar.scoring.forward import num_forwards, scored_tokens
from gar.scoring.token_similarity import num_token_forwards, token_alignments
from gar.settings import SignalSettings
from gar.shaping import ResponseFacts, TableRow, VectorPlan
from gar.spans import TokenSequence
from tests.models.autograd import own_means, random_sequences
from tests.scoring.test_forward import VOCAB, forward_shapes, tiny_qwen3

# Two groups of responses, interleaved; the second has two anchors. Mixed lengths, a gap, one token.
RESPONSES = [(5, 12, range(12)), (9, 30, range(3, 20)), (5, 7, [0, 1, 4, 6]), (9, 1, [0]), (5, 25, range(20, 25))]
GROUPS = [3, 8, 3, 8, 3]
ANCHORS = {3: [(5, 9, range(2, 9))], 8: [(9, 6, range(6)), (9, 14, range(14))]}
SETTINGS: dict[str, dict[str, Any]] = {
    "recall": {"similarity": "match"},
    "precision": {"similarity": "match", "match": "precision"},
    "f": {"similarity": "match", "match": "f"},
    "gradient": {"similarity": "match", "kind": "gradient", "temperature": 2.0},
    "ordered": {"similarity": "ordered"},
    "sum": {"similarity": "sum"},
    "kernel": {"similarity": "kernel"},
}
# Ours is float32, the second route float64 but for the model's own float32 norms.
CLOSE = {"rtol": 0.0, "atol": 5e-6}


@pytest.fixture(scope="module")
def model():
    return tiny_qwen3(tied=True)


def rows() -> list[TableRow]:
    sequences = random_sequences(VOCAB, RESPONSES)
    anchors = {group: random_sequences(VOCAB, shapes, seed=group) for group, shapes in ANCHORS.items()}
    return [
        TableRow(
            facts=ResponseFacts(group_index=group, status="ok", verified=True, well_formatted=True),
            sequence=sequence,
            anchors=anchors[group],
        )
        for group, sequence in zip(GROUPS, sequences, strict=True)
    ]


def plan_of(table_rows: list[TableRow], needed: tuple[bool, ...] = (True,) * 5) -> VectorPlan:
    return VectorPlan(table_rows, torch.tensor(needed))


def token_rows(model: Any, sequence: TokenSequence, kind: str, temperature: float = 1.0) -> Tensor:
    """u_t of each scored token, float64: the mean of a sequence in which it alone is scored."""
    alone = [replace(sequence, positions=[position]) for position in sequence.positions]
    return own_means(model, alone, kind=kind, temperature=temperature)


def expected_alignment(model: Any, row: TableRow, name: str) -> float:
    """The best anchor by the core's functions in float64, which have a second route of their own."""

    def tokens_of(sequence: TokenSequence) -> tuple[ResponseTokens, Tensor]:
        kind, temperature = SETTINGS[name].get("kind", "gradient-activation"), SETTINGS[name].get("temperature", 1.0)
        u = token_rows(model, sequence, "gradient" if name in ("sum", "kernel") else kind, temperature)
        ((_, tokens),) = scored_tokens(find_parts(model), [sequence], 10_000)
        return ResponseTokens(u, torch.zeros(len(u), dtype=torch.long), 1), tokens.hidden.double()

    response, hidden = tokens_of(row.sequence)
    values = []
    for anchor in row.anchors:
        others, other_hidden = tokens_of(anchor)
        if name == "kernel":
            values.append(kernel_similarity(response, hidden, others.vectors, other_hidden))
        elif name == "sum":
            values.append(cosine_sum(response, hidden, others.vectors, other_hidden).similarity)
        elif name == "ordered":
            values.append(ordered_match(response, others.vectors).recall)
        else:
            match = token_match(response, others.vectors)
            values.append({"precision": match.precision, "f": match.f_score}.get(name, match.recall))
    return float(torch.cat(values).max())


@pytest.mark.parametrize("name", SETTINGS)
def test_token_alignments_are_those_of_autograds_vectors(model, name):
    found = token_alignments(find_parts(model), plan_of(rows()), SignalSettings(**SETTINGS[name]), shares=True)
    expected = torch.tensor([expected_alignment(model, row, name) for row in rows()], dtype=torch.float64)
    torch.testing.assert_close(found.alignment, expected, **CLOSE)
    kind = SETTINGS[name].get("kind", "gradient-activation")
    means = own_means(model, [row.sequence for row in rows()], kind=kind, temperature=2.0 if name == "gradient" else 1)
    torch.testing.assert_close(found.means.double(), means, **CLOSE)
    for i, row in enumerate(rows()):
        assert len(found.shares[i]) == len(row.sequence.positions)
        if name != "kernel":
            assert sum(found.shares[i]) == pytest.approx(float(found.alignment[i]), abs=1e-6)


@pytest.mark.parametrize("name", ["recall", "ordered", "sum", "kernel"])
def test_token_alignments_do_not_depend_on_passes_memory_or_company(model, name):
    parts, settings = find_parts(model), SignalSettings(**SETTINGS[name])
    whole = token_alignments(parts, plan_of(rows()), settings).alignment
    copies = {"recall": 2, "ordered": 4, "sum": 7, "kernel": 5}[name]
    least = 2 * 4 * 24 * copies * (17 + 20)  # the longest response of a group, and its group's anchors
    tight = settings.model_copy(update={"memory_bytes": least, "max_batch_tokens": 30})
    torch.testing.assert_close(token_alignments(parts, plan_of(rows()), tight).alignment, whole, **CLOSE)
    with pytest.raises(ConfigError, match=rf"memory_bytes is {least - 1}, but .* of 17 tokens .* at least {least}"):
        token_alignments(parts, plan_of(rows()), tight.model_copy(update={"memory_bytes": least - 1}))
    alone = token_alignments(parts, plan_of(rows(), (False, False, True, False, False)), settings).alignment
    torch.testing.assert_close(alone[2], whole[2], **CLOSE)
    assert alone.isfinite().tolist() == [False, False, True, False, False]


def test_ordered_refuses_a_table_of_cosines_that_does_not_fit(model):
    response, anchor = random_sequences(VOCAB, [(5, 40, range(40))] * 2)
    plan = plan_of([replace(rows()[0], sequence=response, anchors=[anchor])], (True,))
    least = 2 * 40 * 40 * 40  # bytes of a pair of tokens, twice: the other half of the memory holds vectors
    settings = SignalSettings(similarity="ordered", memory_bytes=least)
    assert token_alignments(find_parts(model), plan, settings, shares=True).alignment.isfinite().all()
    with pytest.raises(ConfigError, match=rf"memory_bytes is {least - 1}, .* expected at least {least}"):
        token_alignments(find_parts(model), plan, settings.model_copy(update={"memory_bytes": least - 1}))


def test_token_alignments_take_hidden_states_that_are_known(model):
    parts, settings = find_parts(model), SignalSettings(similarity="match")
    plan = plan_of(rows())
    whole = token_alignments(parts, plan, settings).alignment
    hidden = {}
    for i in (0, 3, 4):
        ((_, tokens),) = scored_tokens(parts, [rows()[i].sequence], 10_000)
        hidden[i] = tokens.hidden
    fresh = find_parts(tiny_qwen3(tied=True))
    shapes = forward_shapes(fresh.backbone)
    found = token_alignments(fresh, plan, settings, hidden=hidden).alignment
    torch.testing.assert_close(found, whole, **CLOSE)
    # one more for each group: its anchors in a pass, and the response that is not known
    assert len(shapes) == num_token_forwards(plan, settings, parts.width, hidden) == 4
    assert num_forwards(plan.sequences, 1) == num_token_forwards(
        plan, SignalSettings(similarity="match", max_batch_tokens=1), parts.width, {}
    )


def test_token_alignments_leave_out_what_has_no_vector(model):
    """NaN in one response's states takes that response alone, NaN in an anchor's that anchor."""
    parts, settings, plan = find_parts(model), SignalSettings(similarity="match"), plan_of(rows())
    whole = token_alignments(parts, plan, settings, shares=True)
    hidden = {}
    for i, row in enumerate(rows()):
        ((_, tokens),) = scored_tokens(parts, [row.sequence], 10_000)
        hidden[i] = tokens.hidden.clone()
    hidden[0][1, 2] = torch.nan
    hidden[2].zero_()  # u_t = g_t * 0 has no direction
    found = token_alignments(parts, plan, settings, hidden=hidden, shares=True)
    assert found.alignment.isnan().tolist() == [True, False, True, False, False]
    assert found.shares.keys() == {1, 3, 4}
    torch.testing.assert_close(found.alignment[[1, 3, 4]], whole.alignment[[1, 3, 4]], **CLOSE)
    assert found.means[0].isnan().any()
    assert not found.means[2].any()


def test_token_alignments_ignore_an_autocast_around_the_products(model):
    parts, settings = find_parts(model), SignalSettings(similarity="match")
    hidden = {i: next(scored_tokens(parts, [row.sequence], 999))[1].hidden for i, row in enumerate(rows())}
    plan = plan_of([replace(row, anchors=[row.sequence]) for row in rows()][:1], (True,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = token_alignments(parts, plan, settings, hidden=hidden)
    # the anchor's pass is made under autocast, as TRL's: its states have 8 bits, cosines of 8 bits would be 1 or 0.996
    assert 0.9 < float(found.alignment[0]) < 1
    assert float(found.alignment[0]) != float(found.alignment[0].bfloat16())
