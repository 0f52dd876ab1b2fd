"""Vectors on one process, with the head split over 1, 2 and 3 gloo processes, and over 2 x 2 with the context.

All against float64, where values are large, not finite or absent, too.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from gar.core import Budget, Head, Ranks, ScoredTokens, Signal, VocabShard, gather_tokens, response_means, unit_rows
from tests.core.conftest import Case, autograd_means, exact_gradients, make_case
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.dist

VOCAB, PADDED, RESPONSES = 37, 40, 4
SHARDS = {1: [(0, 40)], 2: [(0, 9), (9, 40)], 3: [(25, 36), (0, 25), (36, 40)]}  # uneven; in 3, out of order

HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {"bias": torch.linspace(-2, 2, VOCAB).double(), "temperature": 1.3, "logit_scale": 0.6,
            "logit_softcap": 3.0},
    "gradient": {"signal": "gradient"},
    "hidden": {"signal": "hidden"},
    "thresholds": {"activation_threshold": 0.3, "keep_fraction": [0.3, 1.0, 0.5, 0.01]},
    "hidden kept": {"signal": "hidden", "keep_fraction": 0.6},
}  # fmt: skip


def float32(case: Case) -> Case:
    return Case(*(tensor.float() if tensor.is_floating_point() else tensor for tensor in case))


def unlikely() -> Case:
    """Logits of several hundred on every third token: log p_y is far below -108 for most of those."""
    case = make_case(tokens=30, peak=2.0)
    case.hidden[::3] *= 300.0
    return float32(case)


def product_overflows() -> Case:
    """log p_y is -106.7: sum exp(z - ref) = 2 exp(86) fits in float32, times a row of 1e4 it does not; in one shard."""
    weight = torch.zeros(VOCAB, 8)
    weight[:, 0] = -50.0
    weight[0, 0] = -105.0
    weight[20:22, :2] = torch.tensor([1.0, 1e4])
    hidden = torch.zeros(4, 8)
    hidden[:, 0] = 1.0
    return Case(hidden, weight, torch.zeros(4, dtype=torch.long), torch.arange(4))


def confident() -> Case:
    """Hidden states that lean toward their target's row."""
    case = make_case(hidden=64, peak=1.0)
    target_rows = case.weight[case.target_ids]
    lean = 30.0 * target_rows / target_rows.square().sum(-1, keepdim=True)
    return float32(case._replace(hidden=case.hidden + lean))


def broken(value: float) -> Case:
    """One number of the third response is not finite."""
    case = make_case(tokens=30, peak=2.0)
    case.hidden[(case.response_index == 2).nonzero()[1], 5] = value
    return case


def broken_head() -> Case:
    case = make_case(tokens=30, peak=2.0)
    case.weight[30, 1] = math.nan  # in one shard alone
    return case


BROKEN = {
    f"{value}, {kept} kept": (partial(broken, value), {"keep_fraction": kept})
    for value in (math.nan, math.inf, -math.inf) for kept in (1.0, 0.5)
}  # fmt: skip


CASES: dict[str, tuple[Callable[[], Case], dict[str, Any]]] = {
    **{name: (partial(make_case, tokens=40, peak=2.0, seed=3), options) for name, options in HEADS.items()},
    "float32": (lambda: float32(make_case(peak=2.0)), {}),
    "unlikely": (unlikely, {}),
    "product overflows": (product_overflows, {"signal": "gradient"}),
    "confident": (confident, {}),
    **BROKEN,
    "nan weight": (broken_head, {}),
    "no tokens": (partial(make_case, tokens=0), {"keep_fraction": 0.5}),
}


def means_of(
    case: Case,
    *,
    ranks: Ranks,
    signal: str = "gradient-activation",
    activation_threshold: float = 0.0,
    keep_fraction: Any = 1.0,
    **head: Any,
) -> Tensor:
    if isinstance(keep_fraction, list):
        keep_fraction = torch.tensor(keep_fraction)
    return response_means(
        ScoredTokens(case.hidden, case.target_ids, case.response_index, RESPONSES),
        Head(case.weight, **head),
        Signal(signal, activation_threshold, keep_fraction),
        ranks=ranks,
        budget=Budget(chunk_tokens=7),
    )


def sharded(case: Case, options: dict[str, Any], span: tuple[int, int], **ranks: Any) -> Tensor:
    """`response_means` with the rows [first, end) of a head with padding, which would matter if it counted."""
    first, end = span
    weight = torch.cat([case.weight, torch.full((PADDED - VOCAB, case.weight.shape[1]), 9.0).to(case.weight)])
    bias = options.get("bias")
    if bias is not None and len(bias) == VOCAB:
        options = {**options, "bias": torch.cat([bias, torch.full((PADDED - VOCAB,), 9.0).to(bias)])[first:end]}
    ranks.setdefault("vocab", VocabShard(first, VOCAB))
    return means_of(case._replace(weight=weight[first:end]), ranks=Ranks(**ranks), **options)


def all_cases() -> dict[str, Tensor]:
    mine = SHARDS[dist.get_world_size()][dist.get_rank()]
    found = {name: sharded(make(), options, mine) for name, (make, options) in CASES.items()}
    case = CASES["thresholds"][0]()
    share = case.hidden.chunk(dist.get_world_size())[dist.get_rank()]  # 40 tokens in 3 parts are 14, 14 and 12
    found["split by sequence"] = sharded(case._replace(hidden=gather_tokens(share)), HEADS["thresholds"], mine)
    return found


def split_by_context() -> dict[str, Tensor]:
    """Ranks 0 and 1 share one half of the tokens, 2 and 3 the other; 0 and 2 hold the same rows of W."""
    rank = dist.get_rank()
    vocab_groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    context_groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    found = {}
    for name, options in HEADS.items():
        case = make_case(tokens=41, peak=2.0, seed=3)
        mine = slice(0, 13) if rank < 2 else slice(13, None)  # halves of unequal length
        half = Case(case.hidden[mine], case.weight, case.target_ids[mine], case.response_index[mine])
        first, end = SHARDS[2][rank % 2]
        split = {"vocab": VocabShard(first, VOCAB, vocab_groups[rank // 2]), "context": context_groups[rank % 2]}
        found[name] = sharded(half, options, (first, end), **split)
        if rank in (0, 2):  # the context alone: each of the two has the whole head
            found[f"{name}, whole head"] = means_of(half, ranks=Ranks(context=context_groups[0]), **options)
    fault = half._replace(target_ids=half.target_ids + (100 if rank == 3 else 0))
    with pytest.raises(ValueError, match=r"target_ids must lie in \[0, 37\), got 1\d\d to 1\d\d"):
        sharded(fault, {}, (first, end), **split)
    return found


def refusals() -> list[str]:
    """What this rank is told where rank 1 alone is at fault, or the ranks disagree."""
    case, at_fault = make_case(), dist.get_rank() == 1
    first, end = SHARDS[2][dist.get_rank()]
    fewer = Case(case.hidden[1:], case.weight, case.target_ids[1:], case.response_index[1:])
    calls: list[tuple[Case, dict[str, Any], *tuple[VocabShard, ...]]] = [
        (case._replace(target_ids=case.target_ids + VOCAB) if at_fault else case, {}),
        (case._replace(response_index=case.response_index - 1) if at_fault else case, {}),
        (case, {"temperature": 0.0 if at_fault else 1.0}),
        (case, {"keep_fraction": 0.0}),
        (case._replace(hidden=case.hidden[:, :5]) if at_fault else case, {}),
        (case, {"bias": torch.zeros(3)} if at_fault else {}),
        (fewer if at_fault else case, {}),
        (case, {}, VocabShard(first + 2 * at_fault, VOCAB)),
        (case, {}, VocabShard(first, VOCAB + at_fault)),
    ]
    texts = []
    for mine, options, *shard in calls:
        with pytest.raises(ValueError, match="got") as refusal:
            sharded(mine, options, (first, end), vocab=shard[0] if shard else VocabShard(first, VOCAB))
        texts.append(str(refusal.value))
    return texts


REFUSALS = [
    "target_ids must lie in [0, 37), got 37 to 73", "response_index must lie in", "temperature must be positive",
    "keep_fraction must be in", "must agree in their last dimension", "bias must have one entry per row",
    "must hold the same tokens, got [23, 22]", "each token id of [0, 37) once", "must have the same vocab_size",
]  # fmt: skip


@pytest.fixture(scope="module", params=[0, 1, 2, 3], ids="{} ranks".format)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    if request.param == 0:
        return [{name: means_of(make(), ranks=Ranks(), **options) for name, (make, options) in CASES.items()}]
    return run_ranks(all_cases, request.param, tmp_path_factory.mktemp("ranks"))


def largest_error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).abs().max() / truth.abs().max())


def test_response_means_agree_with_autograd(found):
    for name in HEADS:
        make, options = CASES[name]
        truth = autograd_means(make(), num_responses=RESPONSES, **options)
        assert largest_error(found[0][name], truth) <= 1e-7, name  # float64 inside, float32 out
    # As on one rank: a logit of size 4 carries 4 * 6e-8 in float32, one of 1000 carries 6e-5.
    for name, tolerance in (("float32", 3e-6), ("unlikely", 1e-4), ("product overflows", 1e-6)):
        make, options = CASES[name]
        case = make()._replace(hidden=make().hidden.double())
        truth = autograd_means(case, num_responses=RESPONSES, **options)
        assert largest_error(found[0][name], truth) <= tolerance, name


def test_response_means_of_confident_tokens_keep_their_digits(found):
    case = confident()
    gradients, log_odds = exact_gradients(case)
    assert log_odds.exp().median() < 1e-8  # the complement of a float32 p_y would be 0 for most
    sums = torch.zeros(RESPONSES, 64).double().index_add_(0, case.response_index, gradients * case.hidden.double())
    truth = sums / torch.bincount(case.response_index)[:, None]
    # exp turns the rounding of a logit of 30 into a relative error of 30 * 6e-8, and each side has its own.
    assert largest_error(found[0]["confident"], truth) <= 1e-5


def test_response_means_are_the_same_on_all_ranks(found):
    for ours in found[1:]:
        for name, means in ours.items():
            torch.testing.assert_close(means, found[0][name], rtol=0, atol=0, equal_nan=True)
    if "split by sequence" in found[0]:
        assert torch.equal(found[0]["split by sequence"], found[0]["thresholds"])


def test_response_means_not_finite_stay_with_their_response(found):
    for name, (_, options) in BROKEN.items():
        means, others = found[0][name], [0, 1, 3]
        assert means.isfinite().all(-1).tolist() == [True, True, False, True]
        truth = autograd_means(make_case(tokens=30, peak=2.0), num_responses=RESPONSES, **options)
        assert largest_error(means[others], truth[others]) <= 1e-7
        assert (unit_rows(means) != 0).any(-1).tolist() == [True, True, False, True]
    assert not found[0]["nan weight"].isfinite().all(-1).any()  # on the ranks without the NaN as well
    assert unit_rows(found[-1]["nan weight"]).eq(0).all()
    assert found[0]["no tokens"].tolist() == [[0.0] * 8] * RESPONSES


def test_response_means_of_a_split_context(tmp_path: Path):
    ranks = run_ranks(split_by_context, 4, tmp_path)
    for name, options in HEADS.items():
        truth = autograd_means(make_case(tokens=41, peak=2.0, seed=3), num_responses=RESPONSES, **options)
        for found in ranks:
            assert largest_error(found[name], truth) <= 1e-7
        for found in ranks[::2]:
            assert largest_error(found[f"{name}, whole head"], truth) <= 1e-7


def test_response_means_refuse_on_all_ranks_what_is_wrong_on_one(tmp_path: Path):
    on_rank_0, on_rank_1 = run_ranks(refusals, 2, tmp_path)
    assert on_rank_0 == on_rank_1
    for text, expected in zip(on_rank_0, REFUSALS, strict=True):
        assert expected in text
