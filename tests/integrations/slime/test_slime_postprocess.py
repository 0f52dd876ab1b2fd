"""`postprocess` and its parts on stand-ins of slime and Megatron, one process and two."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gar.core import group_advantages
from gar.errors import CollapseError, ConfigError, GarError, ModelError
from gar.integrations.slime.forward import pack
from gar.integrations.slime.postprocess import slime_rewards
from gar.integrations.slime.settings import read_shaping
from gar.methods import METHODS
from gar.settings import RewardSettings
from gar.step import Row, Step
from tests.engines import rollouts
from tests.engines.rollouts import VOCAB, make_arguments, make_data, scored_batch, sequences_of, true_rewards
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.dist
HIDDEN = 16


# What runs on each rank.


def setting() -> Any:
    """The policy, built under the plugin's eyes."""
    import torch.distributed as dist

    from gar.integrations.slime import on_megatron_init
    from tests.engines import megatron_standin, slime_standin

    assert dist.is_initialized()
    megatron_standin.install()
    slime_standin.install()
    on_megatron_init(make_arguments())
    return megatron_standin.DistributedDataParallel(megatron_standin.Policy(VOCAB, HIDDEN))


def trained(options: dict[str, Any], flags: dict[str, Any] | None = None) -> dict[str, Any]:
    """This rank's share after `postprocess`, and how many rows the head was made to work on."""
    import torch.distributed as dist

    from gar.integrations.slime import postprocess
    from tests.engines.slime_standin import split_by_data_parallel_rank

    policy = setting()
    flags = dict(flags or {})
    data = make_data(flags.pop("num_anchors", 1))
    share = split_by_data_parallel_rank(data, dist.get_world_size())[dist.get_rank()]
    args = make_arguments(gar=options, **flags)
    policy.train()
    postprocess(args, 0, share)
    return {**share, "head rows": policy.module.output_layer.rows_seen, "training": policy.training}


def trained_in_every_way(ways: dict[str, tuple[dict, dict]]) -> dict[str, dict[str, Any]]:
    return {name: trained(*way) for name, way in ways.items()}


def refusals() -> list[str]:
    """Codes of what a rank is told where a hook is missing, or the model has no head."""
    from gar.integrations.slime import on_megatron_init, postprocess
    from gar.integrations.slime.policy import policy_chunks
    from tests.engines import slime_standin
    from tests.engines.megatron_standin import DistributedDataParallel

    def code(kind: type[GarError], call: Any, *arguments: Any) -> str:
        with pytest.raises(kind) as caught:
            call(*arguments)
        return caught.value.code

    def share() -> dict[str, Any]:
        return slime_standin.split_by_data_parallel_rank(make_data(), 1)[0]

    setting()
    codes = [code(ConfigError, postprocess, make_arguments(), 0, {"tokens": []})]
    wrong = share()
    wrong["prompt"] = [replace(p, facts=replace(p.facts, verified=False)) for p in wrong["prompt"]]
    stops = make_arguments(gar={"watchdog": {"mode": "stop", "steps": 1}})
    codes += [code(CollapseError, postprocess, stops, 4, wrong)]
    on_megatron_init(make_arguments())
    codes += [code(ModelError, policy_chunks)]
    on_megatron_init(make_arguments())
    DistributedDataParallel(torch.nn.Linear(2, 2))
    codes += [code(ModelError, postprocess, make_arguments(), 0, share())]

    class OldIterator:
        def __init__(self, rollout_data: dict, micro_batch_size: int | None = None): ...

    sys.modules["slime.backends.megatron_utils.data"].DataIterator = OldIterator
    return [*codes, code(ConfigError, on_megatron_init, make_arguments())]


# What is said of it.

SHAPED = {"rewards_normalization": False}
NORMALIZED = {"advantage": {"ddof": 1, "eps": 1e-6}}
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "shaped": ({}, SHAPED),
    "normalized": (NORMALIZED, {}),
    "not divided": ({}, {"grpo_std_normalization": False}),
    "static": ({}, {**SHAPED, "use_dynamic_batch_size": False, "max_tokens_per_gpu": None}),
    "two anchors": ({}, {**SHAPED, "num_anchors": 2}),
    "grpo": ({"method": "grpo"}, SHAPED),
    "alignment": ({"method": "alignment-only"}, SHAPED),
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return run_ranks(trained_in_every_way, 1, tmp_path_factory.mktemp("one"), WAYS)[0]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    return run_ranks(trained_in_every_way, 2, tmp_path_factory.mktemp("two"), WAYS)


@torch.no_grad()
def truth(method: str = "gar-grpo", anchor: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards and alignments by the core alone, for one anchor of each group."""
    from tests.engines.megatron_standin import Policy

    policy = Policy(VOCAB, HIDDEN)
    means = []
    for part in sequences_of(make_data(2), anchor):
        hidden = [policy.hidden_states(torch.tensor([*s.context_ids, *s.ids], dtype=torch.long)) for s in part]
        means.append(rollouts.core_means(hidden, part, policy.output_layer.weight, {}, [1.0] * len(part)))
    return true_rewards(make_data(), *means, method=method)


def needed_responses(args: Any) -> torch.Tensor:
    return Step(read_shaping(args), [Row(facts=payload.facts) for payload in make_data()["prompt"]]).needed


def of_two(two: list[dict[str, dict[str, Any]]], way: str) -> torch.Tensor:
    whole = torch.zeros(len(make_data()["tokens"]), dtype=torch.float64)
    for rank, found in enumerate(two):
        whole[rank::2] = torch.tensor(found[way]["rewards"], dtype=torch.float64)
    return whole


def test_postprocess_gives_the_method_s_rewards(one, two):
    ways = {"shaped": "gar-grpo", "static": "gar-grpo", "grpo": "grpo", "alignment": "alignment-only"}
    for way, method in ways.items():
        rewards, _ = truth(method)
        torch.testing.assert_close(torch.tensor(one[way]["rewards"], dtype=torch.float64), rewards, rtol=0, atol=1e-6)
        torch.testing.assert_close(of_two(two, way), rewards, rtol=0, atol=1e-6)


def test_postprocess_takes_the_best_of_several_anchors(one, two):
    first, second = truth()[1], truth(anchor=1)[1]
    best = torch.fmax(first, second)
    assert bool((first > second).any())
    assert bool((second > first).any())
    batch = scored_batch(make_data(), best)
    rewards = METHODS["gar-grpo"].shape(batch, RewardSettings()).rewards
    torch.testing.assert_close(torch.tensor(one["two anchors"]["rewards"]).double(), rewards, rtol=0, atol=1e-6)
    torch.testing.assert_close(of_two(two, "two anchors"), rewards, rtol=0, atol=1e-6)


def test_postprocess_normalizes_by_slime_s_flags(one, two):
    shaped = torch.tensor(one["shaped"]["rewards"], dtype=torch.float64)
    groups = torch.tensor([payload.facts.group_index for payload in make_data()["prompt"]])
    options = {"ddof": 1, "eps": 1e-6}
    for way, expected in (
        ("normalized", group_advantages(shaped, groups, scale="std", **options)),
        ("not divided", group_advantages(shaped, groups, scale="none", **options)),
    ):
        assert one[way]["rewards"] == expected.tolist()
        for advantage, reward in zip(one[way]["advantages"], one[way]["rewards"], strict=True):
            assert torch.equal(advantage, torch.full_like(advantage, reward))  # slime's own code computes them
        torch.testing.assert_close(of_two(two, way), expected, rtol=0, atol=1e-4)  # 1e-6 over a spread of 0.01


def test_postprocess_logs_the_same_numbers_on_all_ranks(one, two):
    _, alignment = truth()
    needed = needed_responses(make_arguments())
    share = one["shaped"]
    assert share["gar/alignment_mean"][0] == pytest.approx(float(alignment[needed].mean()), abs=1e-6)
    assert share["gar/scored_fraction"][0] == float(needed.double().mean())
    assert share["gar/no_anchor_fraction"] == [4 / 28] * 28
    assert share["gar/no_signal_fraction"][0] == 1 / 28
    assert share["gar/zero_std_group_fraction_outcome"][0] == pytest.approx(1 / 7)  # all right
    assert share["gar/zero_std_group_fraction_shaped"][0] == 0.0
    assert share["verify/ok_fraction"][0] == share["gar/verified_fraction"][0]
    names = {name for name in share if "/" in name} - {"gar/seconds"}
    for rank in two:
        assert {name for name in rank["shaped"] if "/" in name} - {"gar/seconds"} == names
        for name in names:
            assert rank["shaped"][name] == [pytest.approx(share[name][0], abs=1e-6, nan_ok=True)] * 14


def test_postprocess_leaves_the_head_next_to_nothing_to_do(one):
    assert set(one["shaped"]["head rows"]) == {1}
    assert len(one["shaped"]["head rows"]) > 2
    assert one["shaped"]["training"]
    assert len(one["static"]["head rows"]) == 1  # 4,096 tokens, the default of signal.max_batch_tokens
    assert one["grpo"]["head rows"] == []
    assert math.isnan(one["grpo"]["gar/alignment_mean"][0])


def test_slime_rewards_of_reinforce_plus_plus():
    rewards, groups = torch.tensor([1.0, 0.0, 3.0, 1.0]).double(), torch.tensor([0, 0, 1, 1])
    whitened = {"method": "gar-reinforce-plus-plus"}
    plain = read_shaping(make_arguments(gar=whitened, advantage_estimator="reinforce_plus_plus"))
    assert slime_rewards(make_arguments(), plain, rewards, groups) is rewards
    centered = {"method": "reinforce-plus-plus-baseline"}
    baseline = read_shaping(make_arguments(gar=centered, advantage_estimator="reinforce_plus_plus_baseline"))
    assert slime_rewards(make_arguments(), baseline, rewards, groups).tolist() == [0.5, -0.5, 1.0, -1.0]


def test_pack_keeps_to_its_capacity():
    lengths = [5, 9, 3, 2, 2, 30]
    assert [[lengths[i] for i in batch] for batch in pack(lengths, 10)] == [[30], [9], [5, 3, 2], [2]]


def test_a_missing_hook_is_named(tmp_path: Path):
    (codes,) = run_ranks(refusals, 1, tmp_path)
    assert codes == ["no-payload", "collapse", "no-policy", "no-head", "slime-version"]
