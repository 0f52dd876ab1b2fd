"""On the ranks that train, after slime's own advantages: vectors, alignment, shaped rewards, new advantages."""

import time
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from gar.core import unit_rows
from gar.errors import ConfigError
from gar.integrations.megatron import HeadInputs
from gar.integrations.slime.capture import captured_pass
from gar.integrations.slime.convert import PAYLOAD_KEY, ResponsePayload
from gar.integrations.slime.forward import ScoredSequence, captured_means, sequence_means
from gar.integrations.slime.policy import policy_chunks
from gar.integrations.slime.settings import capture_of, read_settings, read_shaping
from gar.integrations.watchdog import Collapse, Watchdog, warn
from gar.settings import SignalSettings, WatchdogSettings
from gar.shaping import RewardTable, Shaping, align


@torch.no_grad()
def postprocess(args: Any, rollout_id: int, rollout_data: dict[str, Any]) -> None:
    """Replace slime's rewards by the method's and have slime compute its advantages from them.

    Changes `rollout_data`: removes our payload (slime's logger cannot read it), sets `rewards`, `advantages` and
    `returns`, and adds the metrics `gar/...` and `verify/...`, which slime logs under `rollout/`.

    Args:
        args: slime's arguments.
        rollout_id: slime's number of the step.
        rollout_data: This data-parallel rank's part of the batch.

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
            "gar.integrations.slime.convert_samples set, and does the data come from this version of slime?"
        )
    shaping = read_shaping(args)
    payloads: list[ResponsePayload] = rollout_data.pop(PAYLOAD_KEY)
    batch = _Batch(shaping, payloads, mpu.get_data_parallel_group())
    seen = captured_pass() if capture_of(args) == "logprob" else None
    means = None
    if bool(batch.table.needed.any()):
        means = _means(args, shaping.signal, rollout_data, batch, seen)
    watchdog = read_settings(args).watchdog
    _watchdog(watchdog.mode, watchdog.steps).look_at_table(rollout_id, batch.table)
    if not mpu.is_pipeline_last_stage(ignore_virtual=True):
        return  # slime keeps advantages, rewards and logs on the last stage
    shaped = batch.table.shape(batch.alignments(*means) if means else None)
    normalised = slime_rewards(args, shaping, shaped.rewards, batch.table.group_index)
    rollout_data["rewards"] = normalised[batch.places].tolist()
    compute_advantages_and_returns(args, rollout_data)
    for name, value in {**shaped.metrics(), "gar/seconds": time.perf_counter() - start}.items():
        rollout_data[name] = [value] * len(payloads)


def slime_rewards(args: Any, shaping: Shaping, rewards: Tensor, group_index: Tensor) -> Tensor:
    """Rewards as slime's estimators expect them: normalised within groups if its flags say so.

    slime normalises the outcome rewards, before GAR, with groups by position. This function normalises the shaped
    rewards, with groups by `group_index`.
    """
    estimator = shaping.estimator
    if estimator == "reinforce-pp" or not args.rewards_normalization:
        return rewards
    divides = estimator == "group" and args.grpo_std_normalization
    return shaping.normalised(rewards, group_index, scale="std" if divides else "none")


@lru_cache(maxsize=1)
def _watchdog(mode: Any, steps: int) -> Watchdog:
    """The watchdog of the job. It sees the same on all ranks: rank 0 warns, and with mode stop all of them stop."""
    return Watchdog(WatchdogSettings(mode=mode, steps=steps), warn if dist.get_rank() == 0 else _ignore)


def _ignore(_: Collapse) -> None:
    """Do not warn again on other ranks."""


class _Anchor(NamedTuple):
    group: int
    number: int
    """Its index among the anchors of its group."""
    is_scored_here: bool


class _Batch:
    """The responses of all data-parallel ranks in slime's order, and the places of this rank's.

    Every rank decides alike from it: an error on one rank alone would leave the others waiting.
    """

    def __init__(self, shaping: Shaping, payloads: Sequence[ResponsePayload], group: Any):
        self.payloads = payloads
        self._group = group
        gathered: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(gathered, [(payload.position, payload.facts) for payload in payloads], group=group)
        gathered_facts = sorted(
            ((position, facts, owner) for owner, pairs in enumerate(gathered) for position, facts in pairs),
            key=lambda entry: entry[0],
        )
        self.table = RewardTable(shaping, [facts for _, facts, _ in gathered_facts])
        self._owners = [owner for _, _, owner in gathered_facts]
        self._rank = dist.get_rank(group)
        place_of = {position: i for i, (position, _, _) in enumerate(gathered_facts)}
        self.places = [place_of[payload.position] for payload in payloads]
        """Places of this rank's responses among all."""

    @cached_property
    def anchors(self) -> list["_Anchor"]:
        """The anchors of all ranks' needed responses, each once; the rank of a group's first response scores them."""
        first: dict[int, int] = {}
        for i in self.table.needed.nonzero()[:, 0].tolist():
            first.setdefault(self.table.facts[i].group_index, i)
        return [
            _Anchor(group, number, self._owners[i] == self._rank)
            for group, i in first.items()
            for number in range(self.table.facts[i].num_anchors)
        ]

    def needed_here(self) -> list[int]:
        """Indices of this rank's payloads that need a vector."""
        return [k for k, i in enumerate(self.places) if self.table.needed[i]]

    def alignments(self, response_means: Tensor, anchor_means: Tensor) -> Tensor:
        """Best cosine of each needed response of all ranks with its anchors, float64 on the CPU; NaN elsewhere.

        Args:
            response_means: Mean vectors of `needed_here`, in that order.
            anchor_means: Mean vectors of the `anchors` that are scored here, in that order.
        """
        groups = [anchor.group for anchor in self.anchors]
        anchors = response_means.new_zeros(len(groups), response_means.shape[1])
        anchors[[i for i, anchor in enumerate(self.anchors) if anchor.is_scored_here]] = anchor_means
        dist.all_reduce(anchors, group=self._group)
        needed = self.needed_here()
        scored = align(response_means, [self.payloads[k].facts.group_index for k in needed], unit_rows(anchors), groups)
        alignment = torch.zeros(len(self.table.facts), dtype=torch.float64, device=response_means.device)
        alignment[[self.places[k] for k in needed]] = scored.alignment.to(alignment)
        dist.all_reduce(alignment, group=self._group)  # each entry is one rank's, 0 on the others
        return alignment.cpu().where(self.table.needed, torch.nan)


def _means(
    args: Any,
    signal: SignalSettings,
    rollout_data: dict[str, Any],
    batch: _Batch,
    seen: Sequence[HeadInputs] | None,
) -> tuple[Tensor, Tensor] | None:
    """Mean vectors of this rank's needed responses and of the anchors it scores; None before the last stage.

    `seen` is slime's own pass over all responses, if the responses' vectors come from it.
    """
    tokens: list[Tensor] = rollout_data["tokens"]
    prompts = [len(ids) - n for ids, n in zip(tokens, rollout_data["response_lengths"], strict=True)]
    needed = batch.needed_here()
    responses = [ScoredSequence.cut(tokens[k], prompts[k], batch.payloads[k].positions) for k in needed if seen is None]
    anchors = _anchor_sequences(batch, signal, tokens[0].device)
    means = sequence_means(args, policy_chunks(), [*responses, *anchors], signal, device=tokens[0].device)
    if means is None:
        return None
    if seen is None:
        return means[: len(needed)], means[len(needed) :]
    everything = [
        ScoredSequence.whole(tokens[k], prompts[k], batch.payloads[k].positions if k in needed else ())
        for k in range(len(tokens))
    ]
    return captured_means(args, seen, rollout_data["micro_batch_indices"], everything, signal)[needed], means


def _anchor_sequences(batch: _Batch, signal: SignalSettings, device: Any) -> list[ScoredSequence]:
    """The anchors this rank scores, in the order of `_Batch.anchors`."""
    anchors = {payload.facts.group_index: payload.anchors for payload in batch.payloads}
    sequences = []
    for group, number, is_scored_here in batch.anchors:
        if not is_scored_here:
            continue
        anchor = anchors[group][number]
        ids = torch.tensor([*anchor.context_ids, *anchor.ids], dtype=torch.long, device=device)
        sequences.append(
            ScoredSequence.cut(
                ids, len(anchor.context_ids), anchor.positions, keep_fraction=signal.anchor_keep_fraction
            )
        )
    return sequences
