"""On the ranks that train, after slime's own advantages: vectors, alignment, shaped rewards, advantages again."""

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gar.config import RunConfig
from gar.core import best_alignment_scores, group_advantages, unit_rows
from gar.errors import ConfigError
from gar.integrations.metrics import step_metrics
from gar.integrations.slime.capture import captured_pass
from gar.integrations.slime.convert import PAYLOAD_KEY
from gar.integrations.slime.facts import ResponseFacts, ResponsePayload, scored_batch
from gar.integrations.slime.forward import ScoredSequence, captured_means, sequence_means
from gar.integrations.slime.policy import HeadInputs, policy_chunks
from gar.integrations.slime.settings import capture_of, estimator_of, read_settings
from gar.methods import METHODS, eligible_responses
from gar.settings import AdvantageSettings
from gar.shaping import responses_to_score

_SLIME_EPS = 1e-6
_SLIME_DDOF = 1


@torch.no_grad()
def postprocess(args: Any, rollout_id: int, rollout_data: dict[str, Any]) -> None:
    """Replace slime's rewards by the method's and have slime compute its advantages from them.

    Changes `rollout_data`: takes our payload out (slime's logger cannot read it), sets `rewards`, `advantages`,
    `returns`, and adds metrics `gar/...` and `verify/...`, which slime logs under `rollout/`.

    Args:
        args: slime's arguments.
        rollout_id: slime's number of the step.
        rollout_data: This data-parallel rank's part of the batch.

    Raises:
        ConfigError: The responses come without payload; or slime has not made the pass that `capture: logprob` needs.
        ModelError: The model has no head that GAR can read.
    """
    from megatron.core import mpu
    from slime.backends.megatron_utils.loss import compute_advantages_and_returns

    start = time.perf_counter()
    if PAYLOAD_KEY not in rollout_data:
        raise ConfigError(
            "the batch comes without GAR's payload: is --custom-convert-samples-to-train-data-path "
            "gar.integrations.slime.convert_samples set, and does the data come from this version of slime?"
        )
    config = read_settings(args)
    payloads: list[ResponsePayload] = rollout_data.pop(PAYLOAD_KEY)
    batch = _Batch(payloads, mpu.get_data_parallel_group())
    needed = needed_responses(batch.facts, config)
    alignment = torch.full((len(batch.facts),), torch.nan, dtype=torch.float64)
    seen = captured_pass() if capture_of(args) == "logprob" else None
    if bool(needed.any()):
        means = _means(args, config, rollout_data, batch, needed, seen)
        if means is not None:
            alignment = batch.alignments(needed, *means)
    if not mpu.is_pipeline_last_stage(ignore_virtual=True):
        return  # slime's advantages, rewards and logs live on the last stage
    scored = scored_batch(batch.facts, alignment)
    shaped = METHODS[config.method].shape(scored, config.reward)
    normalised = slime_rewards(args, config, shaped.rewards, scored.group_index)
    rollout_data["rewards"] = normalised[batch.mine].tolist()
    compute_advantages_and_returns(args, rollout_data)
    metrics = step_metrics(
        scored,
        eligible_responses(scored, config.reward),
        shaped,
        statuses=[fact.status for fact in batch.facts],
        num_anchors=[fact.num_anchors for fact in batch.facts],
        num_scored_tokens=[fact.num_scored_tokens for fact in batch.facts],
    )
    metrics["gar/seconds"] = time.perf_counter() - start
    for name, value in metrics.items():
        rollout_data[name] = [value] * len(payloads)


def needed_responses(facts: Sequence[ResponseFacts], config: RunConfig) -> Tensor:
    """Which responses of all ranks need a vector."""
    can_score = torch.tensor([fact.can_score for fact in facts])
    return responses_to_score(METHODS[config.method], config.reward, scored_batch(list(facts)), can_score)


def slime_rewards(args: Any, config: RunConfig, rewards: Tensor, group_index: Tensor) -> Tensor:
    """Rewards as slime's estimators expect them: normalised within groups where its own flags say so.

    slime does this on the outcome, before GAR, by position; this does it on the shaped rewards, by group.
    """
    settings: AdvantageSettings = config.advantage
    estimator = estimator_of(config)
    if estimator == "reinforce-pp" or settings.baseline == "none" or not args.rewards_normalization:
        return rewards
    return group_advantages(
        rewards,
        group_index,
        scale="std" if estimator == "group" and args.grpo_std_normalization else "none",
        ddof=_SLIME_DDOF if settings.ddof is None else settings.ddof,
        eps=_SLIME_EPS if settings.eps is None else settings.eps,
        std_floor=settings.std_floor,
    )


class _Batch:
    """The responses of all data-parallel ranks in slime's order, and which of them are this rank's.

    What is decided from it is decided alike on every rank: a refusal on one alone would leave the others waiting.
    """

    def __init__(self, payloads: Sequence[ResponsePayload], group: Any):
        self.payloads = payloads
        self._group = group
        gathered: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(gathered, [payload.facts for payload in payloads], group=group)
        rank = dist.get_rank(group)
        everyone = sorted(
            ((fact, owner) for owner, facts in enumerate(gathered) for fact in facts), key=lambda pair: pair[0].position
        )
        self.facts = [fact for fact, _ in everyone]
        self._owners = [owner for _, owner in everyone]
        places = {fact.position: i for i, fact in enumerate(self.facts)}
        self._rank = rank
        self.mine = [places[payload.facts.position] for payload in payloads]
        """Where this rank's responses stand among all."""

    def anchor_rows(self, needed: Tensor) -> tuple[list[int], list[int]]:
        """One row per needed anchor: its group, and the rank that scores it, that of the group's first response."""
        groups: list[int] = []
        owners: list[int] = []
        for i in needed.nonzero()[:, 0].tolist():
            fact = self.facts[i]
            if fact.group_index not in groups:
                groups += [fact.group_index] * fact.num_anchors
                owners += [self._owners[i]] * fact.num_anchors
        return groups, owners

    def needed_here(self, needed: Tensor) -> list[int]:
        """Which of this rank's payloads are needed."""
        return [k for k, i in enumerate(self.mine) if needed[i]]

    def own_anchor_rows(self, needed: Tensor) -> list[int]:
        """Which anchor rows this rank scores."""
        return [row for row, owner in enumerate(self.anchor_rows(needed)[1]) if owner == self._rank]

    def alignments(self, needed: Tensor, response_means: Tensor, anchor_means: Tensor) -> Tensor:
        """Best cosine of each needed response of all ranks with its anchors, float64 on the CPU; NaN elsewhere.

        Args:
            needed: From `needed_responses`.
            response_means: Of `needed_here`, in that order.
            anchor_means: Of `own_anchor_rows`, in that order.
        """
        device = response_means.device
        groups, _ = self.anchor_rows(needed)
        anchors = response_means.new_zeros(len(groups), response_means.shape[1])
        anchors[self.own_anchor_rows(needed)] = anchor_means
        dist.all_reduce(anchors, group=self._group)
        here = self.needed_here(needed)
        best = best_alignment_scores(
            unit_rows(response_means),
            torch.tensor([self.payloads[k].facts.group_index for k in here], dtype=torch.long, device=device),
            unit_rows(anchors),
            torch.tensor(groups, dtype=torch.long, device=device),
        )
        alignment = torch.zeros(len(self.facts), dtype=torch.float64, device=device)
        alignment[[self.mine[k] for k in here]] = torch.where(best.scored, best.scores.double(), torch.nan)
        dist.all_reduce(alignment, group=self._group)  # each entry is one rank's, 0 on the others
        return alignment.cpu().where(needed, torch.nan)


def _means(
    args: Any,
    config: RunConfig,
    rollout_data: dict[str, Any],
    batch: _Batch,
    needed: Tensor,
    seen: Sequence[HeadInputs] | None,
) -> tuple[Tensor, Tensor] | None:
    """Mean vectors of this rank's needed responses and of the anchors it scores; None before the last stage.

    `seen` is slime's own pass over all responses, where theirs are taken from it.
    """
    tokens: list[Tensor] = rollout_data["tokens"]
    prompts = [len(ids) - n for ids, n in zip(tokens, rollout_data["response_lengths"], strict=True)]
    here = batch.needed_here(needed)
    own = [ScoredSequence.cut(tokens[k], prompts[k], batch.payloads[k].positions) for k in here if seen is None]
    anchors = _anchor_sequences(batch, needed, config, tokens[0].device)
    means = sequence_means(args, policy_chunks(), [*own, *anchors], config.signal, device=tokens[0].device)
    if means is None:
        return None
    if seen is None:
        return means[: len(here)], means[len(here) :]
    everything = [
        ScoredSequence.whole(tokens[k], prompts[k], batch.payloads[k].positions if k in here else ())
        for k in range(len(tokens))
    ]
    return captured_means(args, seen, rollout_data["micro_batch_indices"], everything, config.signal)[here], means


def _anchor_sequences(batch: _Batch, needed: Tensor, config: RunConfig, device: Any) -> list[ScoredSequence]:
    """The anchors this rank scores, in the order of `own_anchor_rows`."""
    groups, _ = batch.anchor_rows(needed)
    anchors = {payload.facts.group_index: payload.anchors for payload in batch.payloads}
    sequences = []
    for row in batch.own_anchor_rows(needed):
        anchor = anchors[groups[row]][row - groups.index(groups[row])]
        ids = torch.tensor([*anchor.context_ids, *anchor.ids], dtype=torch.long, device=device)
        sequences.append(
            ScoredSequence.cut(
                ids, len(anchor.context_ids), anchor.positions, keep_fraction=config.signal.anchor_keep_fraction
            )
        )
    return sequences
