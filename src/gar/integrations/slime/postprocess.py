"""On the ranks that train, after slime's own advantages: vectors, alignment, shaped rewards, new advantages."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gar.errors import ConfigError
from gar.integrations.megatron import HeadInputs
from gar.integrations.slime.convert import PAYLOAD_KEY
from gar.integrations.slime.forward import captured_means, sequence_means
from gar.integrations.slime.policy import captured_pass, policy_chunks
from gar.integrations.slime.settings import capture_of, read_settings, read_shaping
from gar.integrations.watchdog import Watchdog
from gar.metrics import GAR_SECONDS
from gar.response import Response
from gar.settings import WatchdogSettings
from gar.step import Shaping, Step, StepRanks


@torch.no_grad()
def postprocess(args: Any, rollout_id: int, rollout_data: dict[str, Any]) -> None:
    """Replace slime's rewards with the method's, from which slime computes its advantages.

    Changes `rollout_data`: removes GAR's payload, which slime's logger cannot read, sets `rewards`, `advantages` and
    `returns`, and adds the metrics `gar/...` and `verify/...`, which slime logs under `rollout/`.

    Raises:
        ConfigError: The responses have no payload, or slime has not made the pass that `capture: logprob` needs.
        ModelError: The model has no head that GAR can read.
    """
    from megatron.core import mpu
    from slime.backends.megatron_utils.loss import compute_advantages_and_returns

    start = time.perf_counter()
    if PAYLOAD_KEY not in rollout_data:
        raise ConfigError(
            "the batch has no payload of GAR: is --custom-convert-samples-to-train-data-path "
            "gar.integrations.slime.convert_samples set, and does the data come from this version of slime?",
            code="no-payload",
        )
    shaping = read_shaping(args)
    payloads: list[Response] = rollout_data.pop(PAYLOAD_KEY)
    step = Step(shaping, _responses(rollout_data, payloads), ranks=_DataParallel(rollout_data["tokens"][0].device))
    seen = captured_pass() if capture_of(args) == "logprob" else None
    vectors, anchors = _means(args, rollout_data, step, seen) if step.needs_vectors else (None, None)
    watchdog = read_settings(args).watchdog
    _watchdog(watchdog.mode, watchdog.steps).watch(rollout_id, step)
    if not mpu.is_pipeline_last_stage(ignore_virtual=True):
        return  # slime keeps advantages, rewards and logs on the last stage
    rewards = step.finish(vectors, anchors).rewards
    normalized = slime_rewards(args, shaping, rewards, step.group_index)
    rollout_data["rewards"] = normalized[step.here].tolist()
    compute_advantages_and_returns(args, rollout_data)
    for name, value in {**step.metrics(), GAR_SECONDS: time.perf_counter() - start}.items():
        rollout_data[name] = [value] * len(payloads)


def slime_rewards(args: Any, shaping: Shaping, rewards: Tensor, group_index: Tensor) -> Tensor:
    """Shaped rewards for slime's estimators: normalized within groups if its flags ask for it."""
    estimator = shaping.estimator
    if estimator == "reinforce-plus-plus" or not args.rewards_normalization:
        return rewards
    divides = estimator == "group" and args.grpo_std_normalization
    return shaping.normalized(rewards, group_index, scale="std" if divides else "none")


@lru_cache(maxsize=1)
def _watchdog(mode: Any, steps: int) -> Watchdog:
    """The watchdog of the job. It counts equally on all ranks: rank 0 warns, and with mode stop all of them stop."""
    return Watchdog(WatchdogSettings(mode=mode, steps=steps))


class _DataParallel(StepRanks):
    """Data-parallel ranks."""

    def __init__(self, device: Any):
        from megatron.core import mpu

        self._device, self._group = device, mpu.get_data_parallel_group()

    def gather(self, items: list[Any]) -> tuple[list[Any], int]:
        """As `StepRanks`."""
        gathered: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(gathered, items, group=self._group)
        start = sum(map(len, gathered[: dist.get_rank(self._group)]))
        return [item for part in gathered for item in part], start

    def sum(self, values: Tensor) -> Tensor:
        """As `StepRanks`."""
        total = values.to(self._device, copy=True)
        dist.all_reduce(total, group=self._group)
        return total.to(values.device)


def _responses(rollout_data: dict[str, Any], payloads: Sequence[Response]) -> list[Response]:
    """The responses with their tokens again."""
    responses = []
    for tokens, length, payload in zip(rollout_data["tokens"], rollout_data["response_lengths"], payloads, strict=True):
        ids = tokens.tolist()
        prompt, response = ids[: len(ids) - length], ids[len(ids) - length :]
        sequence = replace(payload.sequence, context_ids=prompt, ids=response)
        responses.append(replace(payload, sequence=sequence))
    return responses


def _means(
    args: Any, rollout_data: dict[str, Any], step: Step, seen: Sequence[HeadInputs] | None
) -> tuple[Tensor | None, Tensor | None]:
    """Mean vectors of the step's responses, from slime's own pass if it was `seen`, and of its anchors, or None."""
    signal, device = step.shaping.signal, rollout_data["tokens"][0].device
    own = step.sequences if seen is None else []
    vectors, anchors = sequence_means(args, policy_chunks(), own, step.anchors, signal, device=device)
    if seen is None or vectors is None:
        return vectors, anchors
    needed = set(step.members)
    everything = [
        response.sequence if i in needed else replace(response.sequence, positions=())
        for i, response in enumerate(step.responses)
    ]
    captured = captured_means(args, seen, rollout_data["micro_batch_indices"], everything, signal)
    return captured[step.members], anchors
