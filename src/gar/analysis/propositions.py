"""The paper's statements about rewards, advantages and cost, each checked on groups of rollouts and on a small example.

What fails comes with the numbers that refute it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gar.core import gradient_aligned_rewards, group_advantages, group_sizes
from gar.models.families import ModelParts

Outcome = Literal["holds", "fails", "measured"]

BETA = 0.5
PENALTY = -0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposition:
    """A statement and what came of it.

    Attributes:
        name: Of the statement in the paper, or of ours.
        statement: In our words.
        computed: What was computed, on what.
        number: What came out.
        outcome: "measured" where the statement sets no bound that could hold or fail.
        counterexample: Numbers that refute it; empty where it holds.
    """

    name: str
    statement: str
    computed: str
    number: str
    outcome: Outcome
    counterexample: str = ""


@dataclass(frozen=True, kw_only=True)
class ScoredGroups:
    """Facts about all responses of some groups: float64 and bool, [responses]."""

    eligible: Tensor
    alignment: Tensor
    group_index: Tensor

    def rewards(self) -> Tensor:
        """Shaped rewards. All responses are taken as well formatted: format is not part of these statements."""
        return gradient_aligned_rewards(
            self.eligible, self.alignment, torch.zeros_like(self.alignment), self.group_index, beta=BETA
        )

    def advantages(self) -> Tensor:
        """The paper's normalisation."""
        return group_advantages(self.rewards(), self.group_index, scale="std", ddof=0, eps=1e-6)

    def correct_alone(self) -> "ScoredGroups":
        """The correct responses of each group as a group of their own, where there are at least two."""
        kept = self.eligible & (group_sizes(self.group_index, self.eligible) > 1)
        return ScoredGroups(
            eligible=self.eligible[kept], alignment=self.alignment[kept], group_index=self.group_index[kept]
        )

    def groups(self) -> list[Tensor]:
        """Rows of each group."""
        return [(self.group_index == group).nonzero()[:, 0] for group in self.group_index.unique()]


def _group(eligible: Sequence[bool], alignment: Sequence[float]) -> ScoredGroups:
    return ScoredGroups(
        eligible=torch.tensor(eligible),
        alignment=torch.tensor(alignment, dtype=torch.float64),
        group_index=torch.zeros(len(eligible), dtype=torch.long),
    )


def reward_propositions(scored: ScoredGroups) -> list[Proposition]:
    """Theorem 3 and what surrounds it."""
    groups = scored.groups()
    mixed = [rows for rows in groups if scored.eligible[rows].any() and not scored.eligible[rows].all()]
    alone = scored.correct_alone()
    return [
        _separation(scored, mixed),
        _separation_in_bad_format(),
        _separation_of_advantages(scored, mixed),
        _non_degradation(alone),
        _variance_bound(alone),
        _invariant_mean(alone),
        _positive_advantages(scored, mixed),
    ]


def _separated(scored: ScoredGroups, values: Tensor, groups: Sequence[Tensor]) -> int:
    """Groups whose lowest eligible value lies above the highest of the others."""
    return sum(
        bool(values[rows][scored.eligible[rows]].min() > values[rows][~scored.eligible[rows]].max()) for rows in groups
    )


def _separation(scored: ScoredGroups, mixed: Sequence[Tensor]) -> Proposition:
    good = _separated(scored, scored.rewards(), mixed)
    return Proposition(
        name="Theorem 3, rewards",
        statement="Given P(x), every response in P(x) has a higher reward than every response outside of it.",
        computed="groups with members in and outside P(x): lowest reward inside above the highest outside",
        number=f"{good} of {len(mixed)} groups",
        outcome="holds" if good == len(mixed) else "fails",
    )


def _separation_in_bad_format() -> Proposition:
    penalty = torch.tensor([PENALTY, 0.0], dtype=torch.float64)
    rewards = gradient_aligned_rewards(
        torch.tensor([False, False]), torch.zeros(2, dtype=torch.float64), penalty, torch.tensor([0, 0])
    )
    return Proposition(
        name="Theorem 3, for right answers",
        statement="A right answer has a higher reward than a wrong one.",
        computed="algorithm 1: a right answer in bad format beside a wrong one in good format",
        number=f"{float(rewards[0]):.1f} against {float(rewards[1]):.1f}",
        outcome="fails",
        counterexample="P(x) holds well formatted answers alone: the right answer in bad format gets the penalty.",
    )


def _separation_of_advantages(scored: ScoredGroups, mixed: Sequence[Tensor]) -> Proposition:
    good = _separated(scored, scored.advantages(), mixed)
    return Proposition(
        name="Theorem 3, advantages within a group",
        statement="Within a group, every advantage in P(x) lies above every one outside.",
        computed="the same groups, advantages of equation 12",
        number=f"{good} of {len(mixed)} groups",
        outcome="holds" if good == len(mixed) else "fails",
    )


def _non_degradation(alone: ScoredGroups) -> Proposition:
    example = _group([True, True], [0.6, 0.2])
    negative = int((alone.advantages() < 0).sum())
    return Proposition(
        name="Theorem 3, non-degradation of advantages",
        statement="The training signal of a correct response is not below that of the outcome alone.",
        computed="the correct responses of each problem as a group: negative advantages, 0 under the outcome alone",
        number=f"{negative} of {len(alone.eligible)} responses in {len(alone.groups())} groups",
        outcome="fails",
        counterexample="Two correct responses with alignment 0.6 and 0.2 get the advantages "
        + " and ".join(f"{value:+.2f}" for value in example.advantages().tolist())
        + ". It holds for rewards, which are never below 1.",
    )


def _variance_bound(alone: ScoredGroups) -> Proposition:
    def bound(values: Tensor) -> float:
        return min(1.0, BETA**2 * float(values.var(correction=0)))

    example = _group([True, True], [0.6, 0.2])
    variance = float(example.rewards().var(correction=0))
    rewards = alone.rewards()
    informative = [rows for rows in alone.groups() if bound(alone.alignment[rows]) > 1e-12]
    violated = sum(
        float(rewards[rows].var(correction=0)) < bound(alone.alignment[rows]) * (1 - 1e-9) for rows in informative
    )
    return Proposition(
        name="Variance of rewards",
        statement="Var r >= min(1, beta^2 Var b) in a group.",
        computed="the same groups, where alignments differ",
        number=f"violated in {violated} of {len(informative)} groups",
        outcome="fails",
        counterexample=f"Alignments 0.6 and 0.2, both correct: Var r = {variance:.4f} against "
        f"{bound(example.alignment):.4f}. The clip cuts the lower half of the spread.",
    )


def _invariant_mean(alone: ScoredGroups) -> Proposition:
    example = _group([True, True], [0.6, 0.2]).rewards().mean()
    mean = f"{float(alone.rewards().mean()):.4f} over " if len(alone.eligible) else ""
    return Proposition(
        name="Mean of rewards",
        statement="Centred bonuses leave the mean reward of a group as it is.",
        computed="mean reward of the same groups; 1 without bonus",
        number=f"{mean}{len(alone.groups())} groups",
        outcome="fails",
        counterexample=f"Alignments 0.6 and 0.2, both correct: the mean is {float(example):.2f}, not 1. It holds "
        "without the clip.",
    )


def _positive_advantages(scored: ScoredGroups, mixed: Sequence[Tensor]) -> Proposition:
    example = _group([True, True, False, False], [0.6, 0.2, 0.0, 0.0])
    advantages = scored.advantages()
    above, below = 0, 0
    for rows in mixed:
        members = rows[scored.eligible[rows]]
        under = scored.alignment[members] < scored.alignment[members].mean() - 1e-9
        below += int(under.sum())
        above += int((advantages[members][under] > 0).sum())
    return Proposition(
        name="Sign of advantages",
        statement="Only correct responses that align above the mean of their group have a positive advantage.",
        computed="mixed groups: correct responses below the mean alignment with a positive advantage",
        number=f"{above} of {below} responses are positive",
        outcome="fails",
        counterexample="Alignments 0.6 and 0.2, beside two wrong responses: the second has the advantage "
        f"{float(example.advantages()[1]):+.2f}.",
    )


# --------------------------------------------------------------------------------------------------------------- cost


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """Sizes of a decoder with grouped-query attention and a gated MLP (Qwen3)."""

    name: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    mlp: int

    @property
    def head_weights(self) -> int:
        """Of the output projection."""
        return self.vocab * self.hidden

    @property
    def body_weights(self) -> int:
        """Of the matrices of all layers."""
        attention = self.hidden * self.head_width * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.mlp)


QWEN3_8B = Architecture(
    name="Qwen3-8B", vocab=151936, hidden=4096, layers=36, heads=32, kv_heads=8, head_width=128, mlp=12288
)
QWEN3_4B = Architecture(
    name="Qwen3-4B", vocab=151936, hidden=2560, layers=36, heads=32, kv_heads=8, head_width=128, mlp=9728
)


def cost_proposition(parts: ModelParts) -> Proposition:
    """The paper's cost ratio of head and body against the count of weights."""
    printed = QWEN3_8B.vocab / (QWEN3_8B.layers * QWEN3_8B.hidden)
    ratios = {a.name: a.head_weights / a.body_weights for a in (QWEN3_8B, QWEN3_4B)}
    body = sum(p.numel() for p in parts.backbone.parameters() if p.ndim == 2 and p.shape != parts.weight.shape)
    counts = [f"{name} {ratio:.3f}" for name, ratio in ratios.items()]
    return Proposition(
        name="Cost ratio",
        statement=f"The head costs V / (L d) of the body: {printed:.2f} at the sizes of {QWEN3_8B.name}.",
        computed="weights of the head over weights of the layers, which forward passes cost in proportion",
        number=", ".join([*counts, f"this model {parts.weight.numel() / body:.3f}"]),
        outcome="fails",
        counterexample=f"A layer has about 12 d^2 weights, not d^2: the printed ratio is "
        f"{printed / ratios[QWEN3_8B.name]:.1f} times too large at {QWEN3_8B.name}.",
    )
