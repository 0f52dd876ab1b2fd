"""A method: arithmetic on a batch of responses, and a declaration of what it needs."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from gar.settings import RewardSettings

AlignmentSource = Literal["anchor", "shuffled-anchor", "random-anchor", "text", "length"]
Estimator = Literal["group", "reinforce-pp", "reinforce-pp-baseline"]
ExpertUse = Literal["member", "mixture"]
SelfDistillation = Literal["sdft", "sdpo"]
Need = (
    AlignmentSource
    | Literal["compares_responses", "token_level", "gate", "loss", "expert", "teacher"]
    | Literal["initial_policy"]
)
"""Capabilities that a method or its signal may require of an engine."""

_VECTOR_SOURCES = ("anchor", "shuffled-anchor", "random-anchor")

OUTCOME_SETTINGS = ("base", "penalty", "format_gate")
"""Fields of `RewardSettings` that the plain outcome reward reads."""

BONUS_SETTINGS = (*OUTCOME_SETTINGS, "beta", "centre", "clip", "singleton")
"""Fields that the outcome with a gradient-aligned bonus reads."""


@dataclass(frozen=True, kw_only=True)
class ScoredBatch:
    """Facts about all responses of one optimiser step, of all ranks. Every tensor is [responses].

    Attributes:
        verified: The verifier accepts the answer.
        well_formatted: The response keeps the format.
        group_index: Which problem it answers.
        alignment: Likeness to the anchor, float64: the cosine of their vectors, or the method's substitute. NaN where
            not scored.
        scored: It has an anchor, and it and the anchor have usable vectors.
        vectors: [responses, hidden], unit rows, for a method that compares responses with each other.
    """

    verified: Tensor
    well_formatted: Tensor
    group_index: Tensor
    alignment: Tensor
    scored: Tensor
    vectors: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class ShapedRewards:
    """A method's rewards, float64 [responses]: `rewards = outcome + bonuses + penalties`."""

    rewards: Tensor
    outcomes: Tensor
    bonuses: Tensor
    penalties: Tensor


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the paper's tables. Drivers compute only what it declares.

    Attributes:
        name: As in `gar train --method NAME`.
        summary: One line for `--help` and the docs.
        shape: Computes rewards from facts.
        alignment: What `ScoredBatch.alignment` holds; None for nothing.
        scores_all: Every response is scored, not only eligible ones that may earn a bonus.
        compares_responses: `ScoredBatch.vectors` holds the vectors of all responses.
        token_level: Rewards and advantages are per token, from a judge's gradients (`gar.scoring.judge`).
        signal: Fields of `SignalSettings` that belong to the method; `gar.methods.settings` puts them in force.
        reward: Fields of `RewardSettings` that `shape` reads.
        estimator: How rewards become advantages, unless the run chooses another way.
        gate: Weight of each token in the policy loss, from log-probabilities, old ones, and advantages.
        trl: Fields of `trl.GRPOConfig` that belong to the method; a run that sets them otherwise is refused.
        expert_loss: How the expert solution itself is trained on, beside the responses: as an off-policy "member" of
            its group, or in a "mixture" of their loss and imitation. None: not at all.
        supervised_fraction: Share of the optimiser steps, the first ones, that are supervised fine-tuning on the expert
            solutions, without responses.
        self_distillation: Which of TRL's experimental trainers makes the optimiser steps. The policy learns from
            itself with the expert solution in its prompt.
        reads: For a trainer of its own: what a run with these sections reads of signal, reward, advantage, loss,
            watchdog and trl, as "section.name". Of trl without the fields that transformers' `TrainingArguments` has,
            which are always read. None: what the fields above imply.
    """

    name: str
    summary: str
    shape: Callable[[ScoredBatch, RewardSettings], ShapedRewards]
    alignment: AlignmentSource | None = None
    scores_all: bool = False
    compares_responses: bool = False
    token_level: bool = False
    signal: Mapping[str, Any] = field(default_factory=dict)
    reward: tuple[str, ...] = OUTCOME_SETTINGS
    estimator: Estimator = "group"
    gate: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    trl: Mapping[str, Any] = field(default_factory=dict)
    expert_loss: ExpertUse | None = None
    supervised_fraction: float = 0.0
    self_distillation: SelfDistillation | None = None
    reads: Callable[[Mapping[str, Any]], Collection[str]] | None = None

    @property
    def trains_on_experts(self) -> bool:
        """Whether expert solutions themselves are in the loss."""
        return self.expert_loss is not None or self.supervised_fraction > 0

    @property
    def saves_checkpoints(self) -> bool:
        """Whether an interrupted run can be resumed: the method allows checkpoints."""
        return self.trl.get("save_strategy") != "no"

    @property
    def needs_alignment(self) -> bool:
        """Whether rewards depend on alignments, so that problems need anchors."""
        return self.alignment is not None

    @property
    def reads_vectors(self) -> bool:
        """Whether `shape` needs gradient-activation vectors of responses."""
        return self.compares_responses or self.alignment in _VECTOR_SOURCES

    @property
    def needs(self) -> list[Need]:
        """Capabilities that it requires of an engine. A gate comes with the rest of its loss, `trl` included."""
        needs: list[tuple[Need | None, bool]] = [
            (self.alignment, self.alignment is not None),
            ("compares_responses", self.compares_responses),
            ("token_level", self.token_level),
            ("gate", self.gate is not None),
            ("loss", bool(self.trl) and self.gate is None),
            ("expert", self.trains_on_experts),
            ("teacher", self.self_distillation is not None),
        ]
        return [need for need, is_needed in needs if need is not None and is_needed]


def eligible_responses(batch: ScoredBatch, settings: RewardSettings) -> Tensor:
    """P(x): verified and well formatted; only verified under `format_gate="equation"`. The same for every method."""
    return batch.verified if settings.format_gate == "equation" else batch.verified & batch.well_formatted


def format_penalties(batch: ScoredBatch, settings: RewardSettings) -> Tensor:
    """The penalty for bad format, float64 [responses]. The same for every method."""
    zeros = torch.zeros(len(batch.verified), dtype=torch.float64, device=batch.verified.device)
    return zeros.masked_fill(~batch.well_formatted, settings.penalty)


def outcome_rewards(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """Base reward for eligible responses, penalty for bad format, no bonus."""
    outcomes = eligible_responses(batch, settings).double() * settings.base
    penalties = format_penalties(batch, settings)
    return ShapedRewards(
        rewards=outcomes + penalties, outcomes=outcomes, bonuses=torch.zeros_like(outcomes), penalties=penalties
    )
