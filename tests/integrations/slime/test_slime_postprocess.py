"""`postprocess` and its parts on stand-ins of slime and Megatron, one process and two, with both kinds of `capture`."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gar.core import group_advantages
from gar.errors import CollapseError, ConfigError, GarError, ModelError
from gar.integrations.slime.postprocess import slime_rewards
from gar.integrations.slime.settings import read_shaping
from gar.step import Step
from tests.engines import rollouts
from tests.engines.rollouts import VOCAB, make_arguments, make_capturing, make_data, sequences_of, true_rewards
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.dist
HIDDEN = 16
SHAPED = {"rewards_normalization": False}
Found = dict[str, dict[str, Any]]

WAYS: dict[str, Any] = {
    "shaped": make_arguments(gar={}, **SHAPED),
    "normalized": make_arguments(gar={"advantage": {"ddof": 1, "eps": 1e-6}}),
    "not divided": make_arguments(gar={}, grpo_std_normalization=False),
    "kept": make_arguments(gar={"signal": {"expert_keep_fraction": 0.5}}, **SHAPED),
    "static": make_arguments(gar={}, **SHAPED, use_dynamic_batch_size=False, max_tokens_per_gpu=None),
    "grpo": make_arguments(gar={"method": "grpo"}, **SHAPED),
    "alignment": make_arguments(gar={"method": "alignment-only"}, **SHAPED),
    "captured": make_capturing(**SHAPED, rollout_temperature=0.6),
    "captured for nothing": make_capturing(gar={"method": "grpo"}, **SHAPED),
}
"""slime's arguments."""

# What runs on each rank.


def setting() -> Any:
    """The policy, which the plugin has caught."""
    from gar.integrations.slime import on_megatron_init
    from tests.engines import megatron_standin, slime_standin

    megatron_standin.install()
    slime_standin.install()
    on_megatron_init(make_arguments())
    return megatron_standin.DistributedDataParallel(megatron_standin.Policy(VOCAB, HIDDEN))


def shared() -> dict[str, Any]:
    """This rank's share."""
    import torch.distributed as dist

    from tests.engines.slime_standin import split_by_data_parallel_rank

    return split_by_data_parallel_rank(make_data(), dist.get_world_size())[dist.get_rank()]


def step(args: Any, policy: Any) -> dict[str, Any]:
    """A step of slime: passes of the reference and the policy, twice as after an abort, then `postprocess`."""
    from gar.integrations.slime import postprocess
    from tests.engines.slime_standin import compute_log_prob

    share, head = shared(), policy.module.output_layer
    head.rows_seen.clear()
    for _ in range(2):
        with torch.no_grad():
            head.weight.neg_()
            compute_log_prob(args, [policy], share, store_prefix="ref_")
            head.weight.neg_()
        compute_log_prob(args, [policy], share)
    before = len(head.rows_seen)
    postprocess(args, 0, share)
    return share | {
        "passes": head.rows_seen[:before],
        "passes of ours": head.rows_seen[before:],
        "hooks": len(policy._forward_pre_hooks) + len(head._forward_pre_hooks),
        "training": policy.training,
    }


def steps() -> Found:
    policy = setting()
    return {name: step(args, policy) for name, args in WAYS.items()}


def refusals() -> list[str]:
    """Codes of the errors if a hook or a pass is missing, or the model has no head."""
    from gar.integrations.slime import on_megatron_init, postprocess
    from gar.integrations.slime.policy import policy_chunks
    from tests.engines.megatron_standin import DistributedDataParallel
    from tests.engines.slime_standin import compute_log_prob

    def code(kind: type[GarError], call: Any, *arguments: Any) -> str:
        with pytest.raises(kind) as caught:
            call(*arguments)
        return caught.value.code

    args, capturing, policy, wrong = make_arguments(), make_capturing(), setting(), shared()
    codes = [code(ConfigError, postprocess, args, 0, {"tokens": []})]
    wrong["prompt"] = [replace(p, verdict=replace(p.verdict, verified=False)) for p in wrong["prompt"]]
    stops = make_arguments(gar={"watchdog": {"mode": "stop", "steps": 1}})
    codes += [code(CollapseError, postprocess, stops, 4, wrong)]

    codes += [code(ConfigError, postprocess, capturing, 0, shared())]
    changes: tuple[Callable[[list], Any], ...] = (list.pop, lambda schedule: schedule[-1].reverse())
    for change in changes:
        share = shared()
        compute_log_prob(capturing, [policy], share)
        change(share["micro_batch_indices"])
        codes += [code(ModelError, postprocess, capturing, 0, share)]

    on_megatron_init(args)
    codes += [code(ModelError, policy_chunks)]
    on_megatron_init(args)
    DistributedDataParallel(torch.nn.Linear(2, 2))
    codes += [code(ModelError, postprocess, args, 0, shared())]

    class OldIterator:
        def __init__(self, rollout_data: dict, micro_batch_size: int | None = None): ...

    sys.modules["slime.backends.megatron_utils.data"].DataIterator = OldIterator
    return [*codes, code(ConfigError, on_megatron_init, args)]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[list[Found]]:
    """The steps of one rank, and of each of two."""
    return [run_ranks(steps, number, tmp_path_factory.mktemp("ranks")) for number in (1, 2)]


@pytest.fixture(scope="module")
def one(worlds: list[list[Found]]) -> Found:
    return worlds[0][0]


@torch.no_grad()
def truth(method: str = "gar-grpo", keep: float = 1.0) -> tuple[Tensor, Tensor]:
    """Rewards and alignments by the core alone."""
    from tests.engines.megatron_standin import Policy

    policy = Policy(VOCAB, HIDDEN)
    means = []
    for part, fraction in zip(sequences_of(make_data()), (1.0, keep), strict=True):
        hidden = [policy.hidden_states(torch.tensor([*s.context_ids, *s.ids], dtype=torch.long)) for s in part]
        means.append(rollouts.core_means(hidden, part, policy.output_layer.weight, {}, [fraction] * len(part)))
    return true_rewards(make_data(), *means, method=method)


def rewards_of(ranks: list[Found], way: str) -> Tensor:
    whole = torch.zeros(len(make_data()["tokens"]), dtype=torch.float64)
    for rank, found in enumerate(ranks):
        whole[rank :: len(ranks)] = torch.tensor(found[way]["rewards"], dtype=torch.float64)
    return whole


def test_postprocess_gives_the_method_s_rewards(worlds):
    ways = dict.fromkeys(["shaped", "static", "captured"], "gar-grpo") | {"alignment": "alignment-only"}
    for way, method in (ways | {"grpo": "grpo", "captured for nothing": "grpo"}).items():
        for ranks in worlds:
            torch.testing.assert_close(rewards_of(ranks, way), truth(method)[0], rtol=0, atol=1e-6)
    for ranks in worlds:
        torch.testing.assert_close(rewards_of(ranks, "kept"), truth(keep=0.5)[0], rtol=0, atol=1e-6)


def test_postprocess_normalizes_by_slime_s_flags(worlds, one):
    groups = torch.tensor([payload.group_index for payload in make_data()["prompt"]])
    for way, scale in (("normalized", "std"), ("not divided", "none")):
        expected = group_advantages(rewards_of(worlds[0], "shaped"), groups, scale=scale, ddof=1, eps=1e-6)
        for ranks in worlds:  # 1e-6 over a spread of 0.01
            torch.testing.assert_close(rewards_of(ranks, way), expected, rtol=0, atol=1e-4)
        for advantage, reward in zip(one[way]["advantages"], one[way]["rewards"], strict=True):
            assert torch.equal(advantage, torch.full_like(advantage, reward))  # slime's own code computes them


def test_postprocess_logs_the_same_numbers_on_all_ranks(worlds, one):
    needed = Step(read_shaping(make_arguments()), make_data()["prompt"]).needed
    share = one["shaped"]
    assert share["gar/alignment_mean"][0] == pytest.approx(float(truth()[1][needed].mean()), abs=1e-6)
    assert share["gar/scored_fraction"][0] == float(needed.double().mean())
    assert share["gar/no_anchor_fraction"] == [4 / 28] * 28
    assert share["gar/zero_std_group_fraction_outcome"][0] == pytest.approx(2 / 7)  # all right and all wrong
    assert math.isnan(one["grpo"]["gar/alignment_mean"][0])
    names = {name for name in share if "/" in name} - {"gar/seconds"}
    for rank in worlds[1]:
        assert {name for name in rank["shaped"] if "/" in name} - {"gar/seconds"} == names
        for name in names:
            assert rank["shaped"][name] == [pytest.approx(share[name][0], abs=1e-6, nan_ok=True)] * 14


def test_the_head_reads_one_row_in_our_passes_and_slimes_pass_is_unchanged(one):
    own, captured = one["shaped"]["passes of ours"], one["captured"]["passes of ours"]
    assert set(own) == set(captured) == {1}  # the head's rows in each pass
    assert (len(own), len(captured)) == (4, 2)  # of the anchors alone
    assert len(one["static"]["passes of ours"]) == 1  # 4,096 tokens, the default of signal.max_batch_tokens
    assert one["grpo"]["passes of ours"] == one["captured for nothing"]["passes of ours"] == []
    assert one["captured"]["passes"] == one["shaped"]["passes"]
    assert min(one["captured"]["passes"]) > 100  # rows of the head: all tokens
    assert {(found["hooks"], found["training"]) for found in one.values()} == {(0, True)}


def test_a_missing_hook_or_pass_is_named(tmp_path: Path):
    codes = "no-payload collapse no-pass other-schedule other-schedule no-policy no-head slime-version"
    assert run_ranks(refusals, 1, tmp_path)[0] == codes.split()


def test_slime_rewards_of_reinforce_plus_plus():
    rewards, groups = torch.tensor([1.0, 0.0, 3.0, 1.0]).double(), torch.tensor([0, 0, 1, 1])
    whitened = {"method": "gar-reinforce-plus-plus"}
    plain = read_shaping(make_arguments(gar=whitened, advantage_estimator="reinforce_plus_plus"))
    assert slime_rewards(make_arguments(), plain, rewards, groups) is rewards
    centered = {"method": "reinforce-plus-plus-baseline"}
    baseline = read_shaping(make_arguments(gar=centered, advantage_estimator="reinforce_plus_plus_baseline"))
    assert slime_rewards(make_arguments(), baseline, rewards, groups).tolist() == [0.5, -0.5, 1.0, -1.0]
