"""A method: arithmetic on a batch of responses, and a declaration of what it needs."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from gar.config import RunConfig
from gar.settings import RewardSettings, Settings

if TYPE_CHECKING:
    from transformers import Trainer
    from trl import GRPOConfig

    from gar.methods.parts import RunParts

AlignmentSource = Literal["anchor", "shuffled-anchor", "random-anchor", "text", "length"]
Estimator = Literal["group", "reinforce-plus-plus", "reinforce-plus-plus-baseline"]
Need = AlignmentSource | Literal["compares_responses", "gate", "loss", "trainer", "initial_policy"]
"""Capabilities that a method or its signal may require of an engine."""

_VECTOR_SOURCES = ("anchor", "shuffled-anchor", "random-anchor")

OUTCOME_SETTINGS = ("correct_reward", "format_penalty", "format_gate")
"""Fields of `RewardSettings` that the plain outcome reward reads."""

BONUS_SETTINGS = (*OUTCOME_SETTINGS, "bonus_weight", "center", "clip")
"""Fields that the outcome with a gradient-aligned bonus reads."""


@dataclass(frozen=True, kw_only=True)
class ScoredBatch:
    """Facts about all responses of one optimizer step, of all ranks. Every tensor is [responses].

    Attributes:
        verified: The verifier accepts the answer.
        well_formatted: The response keeps the format.
        group_index: Which problem it answers.
        num_tokens: How many tokens it has, with trailing special tokens and tokens of tools.
        alignment: Similarity to the anchor, float64: the cosine of their vectors, or the method's substitute. NaN if
            not scored: it has no anchor, or one of the two has no usable vector.
        vectors: [responses, hidden], unit rows, for a method that compares responses with each other.
    """

    verified: Tensor
    well_formatted: Tensor
    group_index: Tensor
    num_tokens: Tensor
    alignment: Tensor
    vectors: Tensor | None = None

    @property
    def scored(self) -> Tensor:
        """Which responses have an alignment."""
        return self.alignment.isfinite()


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
        alignment: What `ScoredBatch.alignment` holds. None for nothing.
        scores_all: Every response is scored, not only eligible ones that may earn a bonus.
        compares_responses: `ScoredBatch.vectors` holds the vectors of all responses.
        signal: Fields of `SignalSettings` that belong to the method. `gar.methods.plan` puts them in force.
        reward: Fields of `RewardSettings` that `shape` reads.
        estimator: How rewards become advantages, unless the run chooses another way.
        gate: Weight of each token in the policy loss, from log-probabilities, old ones, and advantages.
        trl: Fields of `trl.GRPOConfig` that belong to the method. A run with different values is rejected.
        settings: A section of the configuration for the trainer (`RunParts.section`), under the method's own name (`-`
            becomes `_`).
        trainer: Makes a `Trainer` of transformers from `gar.integrations.trl.RunParts`, or an iterator over the
            trainers of several phases, each made when the one before has ended. None: `GARTrainer`.
        samples: Every optimizer step has responses, so that runs can be paired by their prompts.
        check: Takes a run's configuration and TRL's `GRPOConfig` before anything is loaded. Raises `ConfigError`.
        reads: For a method with a trainer: takes the sections of a run, and returns the settings that the run reads, as
            "section.name". The sections are signal, reward, advantage, watchdog, trl and the method's own. The fields
            of transformers' `TrainingArguments` are always read and not listed. None: what the fields above imply.
        cannot_resume: Why an interrupted run starts anew, in one sentence. Such a run writes no checkpoints.
    """

    name: str
    summary: str
    shape: Callable[[ScoredBatch, RewardSettings], ShapedRewards]
    alignment: AlignmentSource | None = None
    scores_all: bool = False
    compares_responses: bool = False
    signal: Mapping[str, Any] = field(default_factory=dict)
    reward: tuple[str, ...] = OUTCOME_SETTINGS
    estimator: Estimator = "group"
    gate: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    trl: Mapping[str, Any] = field(default_factory=dict)
    settings: type[Settings] | None = None
    trainer: "Callable[[RunParts], Trainer | Iterator[Trainer]] | None" = None
    samples: bool = True
    check: "Callable[[RunConfig, GRPOConfig], None] | None" = None
    reads: Callable[[Mapping[str, Any]], Collection[str]] | None = None
    cannot_resume: str = ""

    def __post_init__(self) -> None:
        if self.cannot_resume:
            object.__setattr__(self, "trl", {**self.trl, "save_strategy": "no"})

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
        """Capabilities that it requires of an engine. A gate also requires the rest of its loss, `trl` included."""
        needs: list[tuple[Need | None, bool]] = [
            (self.alignment, self.alignment is not None),
            ("compares_responses", self.compares_responses),
            ("gate", self.gate is not None),
            ("loss", bool(self.trl) and self.gate is None),
            ("trainer", self.trainer is not None),
        ]
        return [need for need, is_needed in needs if need is not None and is_needed]


def eligible_responses(batch: ScoredBatch, settings: RewardSettings) -> Tensor:
    """P(x): verified and well formatted, or only verified under `format_gate="equation"`. The same for every method."""
    return batch.verified if settings.format_gate == "equation" else batch.verified & batch.well_formatted


def format_penalties(batch: ScoredBatch, settings: RewardSettings) -> Tensor:
    """The penalty for bad format, float64 [responses]. The same for every method."""
    zeros = torch.zeros(len(batch.verified), dtype=torch.float64, device=batch.verified.device)
    return zeros.masked_fill(~batch.well_formatted, settings.format_penalty)


def outcome_rewards(batch: ScoredBatch, settings: RewardSettings) -> ShapedRewards:
    """Base reward for eligible responses, penalty for bad format, no bonus."""
    outcomes = eligible_responses(batch, settings).double() * settings.correct_reward
    penalties = format_penalties(batch, settings)
    return ShapedRewards(
        rewards=outcomes + penalties, outcomes=outcomes, bonuses=torch.zeros_like(outcomes), penalties=penalties
    )
