"""`capture: logprob` on stand-ins of slime and Megatron: whose pass is listened to, and what comes of it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gar.errors import ConfigError, ModelError
from gar.integrations.megatron import HeadInputs
from gar.integrations.slime import capture
from tests.engines.rollouts import make_arguments, make_capturing, make_data
from tests.integrations.slime.test_slime_postprocess import needed_responses, of_two, setting, truth
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


def steps_and_refusals() -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    return steps(), refusals()


def refusals() -> dict[str, str]:
    from gar.integrations.slime import postprocess
    from tests.engines.slime_standin import compute_log_prob, split_by_data_parallel_rank

    policy, args = setting(), make_capturing()
    texts = {}

    def rejected(name: str, error: type[Exception], change: Any = None, *, with_pass: bool = True) -> None:
        share = split_by_data_parallel_rank(make_data(), 1)[0]
        if with_pass:
            compute_log_prob(args, [policy], share)
        if change is not None:
            change(share)
        with pytest.raises(error) as refusal:
            postprocess(args, 0, share)
        texts[name] = str(refusal.value)

    def reorder(share: dict[str, Any]) -> None:
        share["micro_batch_indices"][0].reverse()

    rejected("no pass", ConfigError, with_pass=False)
    step(args, policy)
    rejected("no second pass", ConfigError, with_pass=False)
    rejected("other schedule", ModelError, lambda share: share["micro_batch_indices"].pop())
    rejected("other order", ModelError, reorder)
    return texts


# What is said of it.


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    return run_ranks(steps_and_refusals, 1, tmp_path_factory.mktemp("one"))[0]


@pytest.fixture(scope="module")
def one(alone: tuple[dict, dict]) -> dict[str, dict[str, Any]]:
    return alone[0]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    return run_ranks(steps, 2, tmp_path_factory.mktemp("two"))


def rewards(found: dict[str, Any]) -> Tensor:
    return torch.tensor(found["rewards"], dtype=torch.float64)


@pytest.mark.parametrize("way", ["own", "logprob", "after an aborted one", "temperature"])
def test_postprocess_gives_the_same_rewards_from_slime_s_own_pass(one, two, way):
    expected, _ = truth()
    torch.testing.assert_close(rewards(one[way]), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(of_two(two, way), expected, rtol=0, atol=1e-6)


def test_capture_logprob_passes_the_anchors_alone(one):
    assert int(needed_responses(make_arguments()).sum()) > 10
    own, captured = one["own"]["passes of ours"], one["logprob"]["passes of ours"]
    assert set(own) == set(captured) == {1}  # the head's rows in each pass
    assert (len(own), len(captured)) == (4, 1)
    assert one["nothing needed"]["passes of ours"] == []


def test_capture_logprob_leaves_slime_s_own_pass_as_it_is(one):
    assert one["logprob"]["passes"] == one["own"]["passes"]
    assert min(one["logprob"]["passes"]) > 100  # rows of the head: all tokens


def test_capture_logprob_listens_no_longer_when_training_begins(one):
    assert {found["hooks"] for found in one.values()} == {0}


def test_capture_logprob_refuses_a_step_without_the_pass_or_with_another_one(alone):
    texts = alone[1]
    for name in ("no pass", "no second pass"):
        assert texts[name].startswith("gar.capture is 'logprob', but slime has made no log-probability pass")
    assert "had 4 micro-batches, but its schedule has 3" in texts["other schedule"]
    assert "holds other tokens than slime's schedule says" in texts["other order"]


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
