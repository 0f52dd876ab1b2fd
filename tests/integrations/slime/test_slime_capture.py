"""`capture: logprob` on stand-ins of slime and Megatron: whose pass is listened to, and what comes of it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gar.errors import ConfigError, ModelError
from gar.integrations.megatron import HeadInputs
from gar.integrations.slime import capture
from tests.engines.rollouts import make_arguments, make_capturing, make_data
from tests.integrations.slime.test_slime_postprocess import of_two, setting, truth
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.dist
SHAPED = {"rewards_normalization": False}


# What runs on each rank.


def step(args: Any, policy: Any, *, num_passes: int = 1) -> dict[str, Any]:
    """One of slime's steps: its passes before the advantages, those of the reference included, then `postprocess`."""
    import torch.distributed as dist

    from gar.integrations.slime import postprocess
    from tests.engines.slime_standin import compute_log_prob, split_by_data_parallel_rank

    share = split_by_data_parallel_rank(make_data(), dist.get_world_size())[dist.get_rank()]
    head = policy.module.output_layer
    head.rows_seen.clear()
    for _ in range(num_passes):
        with torch.no_grad():
            head.weight.neg_()
            compute_log_prob(args, [policy], share, store_prefix="ref_")
            head.weight.neg_()
        compute_log_prob(args, [policy], share)
    before = len(head.rows_seen)
    postprocess(args, 0, share)
    hooks = len(policy._forward_pre_hooks) + len(head._forward_pre_hooks)
    return {**share, "passes": head.rows_seen[:before], "passes of ours": head.rows_seen[before:], "hooks": hooks}


def steps() -> dict[str, dict[str, Any]]:
    policy = setting()
    own = make_arguments(gar={}, **SHAPED)
    return {
        "own": step(own, policy),
        "logprob": step(make_capturing(**SHAPED), policy),
        "after an aborted one": step(make_capturing(**SHAPED), policy, num_passes=2),
        "temperature": step(make_capturing(**SHAPED, rollout_temperature=0.6), policy),
        "nothing needed": step(make_capturing(gar={"method": "grpo"}, **SHAPED), policy),
    }


def refusals() -> dict[str, str]:
    from gar.integrations.slime import postprocess
    from tests.engines.slime_standin import compute_log_prob, split_by_data_parallel_rank

    policy, args = setting(), make_capturing()
    codes = {}

    def rejected(name: str, error: type[Exception], change: Any = None, *, with_pass: bool = True) -> None:
        share = split_by_data_parallel_rank(make_data(), 1)[0]
        if with_pass:
            compute_log_prob(args, [policy], share)
        if change is not None:
            change(share)
        with pytest.raises(error) as caught:
            postprocess(args, 0, share)
        codes[name] = caught.value.code

    def reorder(share: dict[str, Any]) -> None:
        share["micro_batch_indices"][0].reverse()

    rejected("no pass", ConfigError, with_pass=False)
    step(args, policy)
    rejected("no second pass", ConfigError, with_pass=False)
    rejected("other schedule", ModelError, lambda share: share["micro_batch_indices"].pop())
    rejected("other order", ModelError, reorder)
    return codes


# What is said of it.


def steps_and_refusals() -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    return steps(), refusals()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    return run_ranks(steps_and_refusals, 1, tmp_path_factory.mktemp("one"))[0]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    return run_ranks(steps, 2, tmp_path_factory.mktemp("two"))


def rewards(found: dict[str, Any]) -> Tensor:
    return torch.tensor(found["rewards"], dtype=torch.float64)


def test_capture_logprob_gives_the_same_rewards_from_slime_s_own_pass(alone, two):
    expected, _ = truth()
    one = alone[0]
    for way in ("own", "logprob", "after an aborted one", "temperature"):
        torch.testing.assert_close(rewards(one[way]), expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(of_two(two, way), expected, rtol=0, atol=1e-6)
    own, captured = one["own"]["passes of ours"], one["logprob"]["passes of ours"]
    assert set(own) == set(captured) == {1}  # the head's rows in each pass
    assert (len(own), len(captured)) == (4, 1)  # of the anchors alone
    assert one["nothing needed"]["passes of ours"] == []
    assert one["logprob"]["passes"] == one["own"]["passes"]  # slime's own is left as it is
    assert min(one["logprob"]["passes"]) > 100  # rows of the head: all tokens
    assert {found["hooks"] for found in one.values()} == {0}  # nobody listens when training begins


def test_capture_logprob_needs_the_pass_of_this_step(alone):
    assert alone[1] == {
        "no pass": "no-pass", "no second pass": "no-pass", "other schedule": "other-schedule",
        "other order": "other-schedule",
    }  # fmt: skip


def test_capture_logprob_keeps_a_bounded_part_of_hidden_states_on_the_device(monkeypatch):
    held = capture._HeldInputs()
    monkeypatch.setattr(capture, "_MOST_DEVICE_BYTES", 2 * 5 * 4 * 4)  # two of these micro-batches, float32
    moved = []
    monkeypatch.setattr(Tensor, "cpu", lambda hidden: (moved.append(hidden), hidden.clone())[1])  # as from a device
    batches = [torch.full((5, 4), float(i)) for i in range(4)]
    for hidden in batches:
        inputs = HeadInputs(token_ids=torch.arange(5), hidden=hidden, weight=hidden, bias=None, is_split=False)
        held.append(inputs)
    assert [hidden is batch for hidden, batch in zip(moved, batches[2:], strict=True)] == [True, True]
    assert [inputs.hidden is batch for inputs, batch in zip(held, batches, strict=True)] == [True, True, False, False]
    for inputs, batch in zip(held, batches, strict=True):
        torch.testing.assert_close(inputs.whole_hidden(None), batch)
