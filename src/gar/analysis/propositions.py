"""The paper's statements about rewards, advantages and cost, each checked on groups of rollouts and on a small example.

What fails comes with the numbers that refute it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gar.core import gradient_aligned_rewards, group_advantages, group_deviations, group_sizes
from gar.models.families import ModelParts
from gar.models.shapes import model_shape
from gar.settings import GROUP_DDOF, GROUP_EPS

Outcome = Literal["holds", "fails", "measured"]

BETA = 0.5
PENALTY = -0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposition:
    """A statement and what came of it.

    Attributes:
        name: Where the paper states it.
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

    def rewards(self, beta: float = BETA) -> Tensor:
        """Shaped rewards. All responses are taken as well formatted: format is not part of these statements."""
        return gradient_aligned_rewards(
            self.eligible, self.alignment, torch.zeros_like(self.alignment), self.group_index, beta=beta
        )

    def advantages(self, beta: float = BETA) -> Tensor:
        """Eq. 10. beta 0: those of the outcome alone."""
        return group_advantages(self.rewards(beta), self.group_index, scale="std", ddof=GROUP_DDOF, eps=GROUP_EPS)

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


_EXAMPLE = _group([True, True], [0.6, 0.2])


def reward_propositions(scored: ScoredGroups) -> list[Proposition]:
    """Theorem 3, propositions 2 and 3, and what the paper concludes from them."""
    groups = scored.groups()
    mixed = [rows for rows in groups if scored.eligible[rows].any() and not scored.eligible[rows].all()]
    alone = scored.correct_alone()
    return [
        _separation(scored, mixed),
        _separation_in_bad_format(),
        _non_degradation(alone),
        _variance(scored),
        _variance_bound(alone),
        _centred_bonus(alone),
        _invariant_mean(alone),
        _positive_advantages(scored, mixed),
    ]


def _separated(scored: ScoredGroups, values: Tensor, groups: Sequence[Tensor]) -> int:
    """Groups whose lowest eligible value lies above the highest of the others."""
    return sum(
        bool(values[rows][scored.eligible[rows]].min() > values[rows][~scored.eligible[rows]].max()) for rows in groups
    )


def _separation(scored: ScoredGroups, mixed: Sequence[Tensor]) -> Proposition:
    rewards = scored.rewards()
    inside = rewards[scored.eligible]
    kept = int((inside >= 1).sum())
    separated = [_separated(scored, values, mixed) for values in (rewards, scored.advantages())]
    return Proposition(
        name="Theorem 3",
        statement="Given P(x), (i) a response inside has at least the base reward 1; (ii) its reward and, within a "
        "group, its advantage are above those of every response outside.",
        computed="responses inside with a reward of at least 1; groups with members inside and outside whose lowest "
        "value inside is above the highest outside, by reward and by advantage",
        number=f"{kept} of {len(inside)} responses; {separated[0]} and {separated[1]} of {len(mixed)} groups",
        outcome="holds" if kept == len(inside) and separated == [len(mixed)] * 2 else "fails",
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


def _non_degradation(alone: ScoredGroups) -> Proposition:
    negative = int((alone.advantages() < 0).sum())
    return Proposition(
        name="Theorem 3 (i), carried over to advantages",
        statement="The advantage of a correct response is not below that of the outcome alone.",
        computed="the correct responses of each problem as a group: negative advantages, 0 under the outcome alone",
        number=f"{negative} of {len(alone.eligible)} responses in {len(alone.groups())} groups",
        outcome="fails",
        counterexample="two correct responses with alignment 0.6 and 0.2 get the advantages "
        + " and ".join(f"{value:+.2f}" for value in _EXAMPLE.advantages().tolist())
        + ". It holds for rewards, which are never below 1.",
    )


def _informative(scored: ScoredGroups) -> list[Tensor]:
    """Correct responses of each group in which their alignments differ."""
    members = [rows[scored.eligible[rows]] for rows in scored.groups()]
    return [rows for rows in members if len(rows) > 1 and _span(scored.alignment[rows]) > 1e-9]


def _span(values: Tensor) -> float:
    return float(values.max() - values.min())


def _variance(scored: ScoredGroups) -> Proposition:
    groups = _informative(scored)
    shaped, outcome = scored.advantages(), scored.advantages(beta=0.0)
    good = sum(_span(shaped[rows]) > 0 and _span(outcome[rows]) == 0 for rows in groups)
    return Proposition(
        name="Proposition 2",
        statement="The advantages of the correct responses of a group differ where their alignments do; under the "
        "outcome alone they are equal.",
        computed="groups with correct responses of different alignment: both are so",
        number=f"{good} of {len(groups)} groups",
        outcome="holds" if good == len(groups) else "fails",
    )


def _variance_bound(alone: ScoredGroups) -> Proposition:
    def bound(values: Tensor) -> float:
        return min(1.0, BETA**2 * float(values.var(correction=0)))

    variance = float(_EXAMPLE.rewards().var(correction=0))
    rewards, groups = alone.rewards(), _informative(alone)
    violated = sum(
        float(rewards[rows].var(correction=0)) < bound(alone.alignment[rows]) * (1 - 1e-9) for rows in groups
    )
    return Proposition(
        name="Proposition 2, its proof",
        statement="Var r >= min(1, beta^2 Var b) among the correct responses of a group.",
        computed="the same groups",
        number=f"violated in {violated} of {len(groups)} groups",
        outcome="fails",
        counterexample=f"alignments 0.6 and 0.2, both correct: Var r = {variance:.4f} against "
        f"{bound(_EXAMPLE.alignment):.4f}. The clip cuts the lower half of the spread.",
    )


def _centred_bonus(alone: ScoredGroups) -> Proposition:
    centred = group_deviations(alone.alignment, alone.group_index)
    worst = max((abs(float(centred[rows].mean())) for rows in alone.groups()), default=0.0)
    return Proposition(
        name="Proposition 3",
        statement="The centred alignments of the correct responses of a group have mean 0.",
        computed="largest mean of the groups with two correct responses or more",
        number=f"at most {worst:.0e} in {len(alone.groups())} groups",
        outcome="holds" if worst < 1e-12 else "fails",
    )


def _invariant_mean(alone: ScoredGroups) -> Proposition:
    mean = f"{float(alone.rewards().mean()):.4f} over " if len(alone.eligible) else ""
    return Proposition(
        name="Appendix G.4",
        statement="Centred bonuses leave the mean reward of a group as it is.",
        computed="mean reward of the same groups; 1 without bonus",
        number=f"{mean}{len(alone.groups())} groups",
        outcome="fails",
        counterexample="alignments 0.6 and 0.2, both correct: the mean is "
        f"{float(_EXAMPLE.rewards().mean()):.2f}, not 1. It holds without the clip.",
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
        name="Proposition 4, its reason",
        statement="Only correct responses that align above the mean of their group have a positive advantage.",
        computed="mixed groups: correct responses below the mean alignment with a positive advantage",
        number=f"{above} of {below} responses are positive",
        outcome="fails",
        counterexample="alignments 0.6 and 0.2, beside two wrong responses: the second has the advantage "
        f"{float(example.advantages()[1]):+.2f}.",
    )


# --------------------------------------------------------------------------------------------------------------- cost


def cost_proposition(parts: ModelParts) -> Proposition:
    """The paper's cost ratio of head and body against the count of weights."""
    shapes = {name: model_shape(f"Qwen/{name}") for name in ("Qwen3-8B", "Qwen3-4B")}
    ratios = {name: shape.vocab * shape.hidden / shape.body_parameters for name, shape in shapes.items()}
    largest = shapes["Qwen3-8B"]
    printed = largest.vocab / (largest.layers * largest.hidden)
    body = sum(p.numel() for p in parts.backbone.parameters() if p.ndim == 2 and p.shape != parts.weight.shape)
    counts = [f"{name} {ratio:.3f}" for name, ratio in ratios.items()]
    return Proposition(
        name="Appendix J",
        statement=f"The head costs V / (L d) of the body: {printed:.2f} at the sizes of Qwen3-8B.",
        computed="weights of the head over weights of the layers, which forward passes cost in proportion",
        number=", ".join([*counts, f"this model {parts.weight.numel() / body:.3f}"]),
        outcome="fails",
        counterexample=f"a layer has about 12 d^2 weights, not d^2: the printed ratio is "
        f"{printed / ratios['Qwen3-8B']:.1f} times too large at Qwen3-8B.",
    )
