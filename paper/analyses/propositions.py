"""The paper's statements about rewards, advantages and cost, checked on groups of rollouts.

Each has two answers: whether it holds for the rollouts at hand, and whether it is true in general. A statement that is
false in general comes with numbers that refute it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gar import RewardSettings
from gar.core import gradient_aligned_bonuses, group_advantages, group_deviations, group_sizes
from gar.methods import METHODS, ScoredBatch
from gar.models import ModelParts

BETA = 0.5
PENALTY = -0.6
DDOF, EPS = 0, 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposition:
    """A statement of the paper, and whether it holds.

    Attributes:
        name: Where the paper states it.
        statement: The statement in our words.
        result: Whether it holds for these rollouts, with the numbers.
        in_general: "true" or "false", with the reason in brief. "no bound to prove" if it sets none.
        counterexample: Numbers that refute it. Empty unless it is false in general.
    """

    name: str
    statement: str
    result: str
    in_general: str
    counterexample: str = ""


def tally(num_holding: int, num_cases: int, cases: str) -> str:
    """The number of cases in which a statement holds, in words: "no case" is not "every case".

    >>> tally(3, 3, "pairs"), tally(1, 3, "pairs"), tally(0, 0, "pairs")
    ('holds for all 3 pairs', 'fails for 2 of 3 pairs', 'not tested: no pairs')
    """
    if not num_cases:
        return f"not tested: no {cases}"
    if num_holding == num_cases:
        return f"holds for all {num_cases} {cases}"
    return f"fails for {num_cases - num_holding} of {num_cases} {cases}"


@dataclass(frozen=True, kw_only=True)
class ScoredGroups:
    """All responses of some groups. Fields are [responses]. `alignment` is float64."""

    eligible: Tensor
    alignment: Tensor
    group_index: Tensor

    def rewards(self, beta: float = BETA) -> Tensor:
        """Shaped rewards. All responses count as well formatted: format is not part of these statements."""
        bonuses = gradient_aligned_bonuses(self.eligible, self.alignment, self.group_index, bonus_weight=beta)
        return self.eligible.double() + bonuses

    def advantages(self, beta: float = BETA) -> Tensor:
        """Eq. 10. With beta 0, the advantages of the outcome alone."""
        return group_advantages(self.rewards(beta), self.group_index, scale="std", ddof=DDOF, eps=EPS)

    def correct_alone(self) -> "ScoredGroups":
        """The correct responses of each group as a group by themselves, where there are at least two."""
        kept = self.eligible & (group_sizes(self.group_index, self.eligible) > 1)
        return ScoredGroups(
            eligible=self.eligible[kept], alignment=self.alignment[kept], group_index=self.group_index[kept]
        )

    def groups(self) -> list[Tensor]:
        """Rows of each group."""
        return [(self.group_index == group).nonzero()[:, 0] for group in self.group_index.unique()]

    def mixed_groups(self) -> list[Tensor]:
        """Rows of each group that has correct and incorrect responses."""
        return [rows for rows in self.groups() if self.eligible[rows].any() and not self.eligible[rows].all()]

    def informative_groups(self) -> list[Tensor]:
        """Rows of the correct responses of each group in which their alignments differ."""
        members = [rows[self.eligible[rows]] for rows in self.groups()]
        return [rows for rows in members if len(rows) > 1 and _span(self.alignment[rows]) > 1e-9]


def _span(values: Tensor) -> float:
    return float(values.max() - values.min())


def _group(eligible: Sequence[bool], alignment: Sequence[float]) -> ScoredGroups:
    return ScoredGroups(
        eligible=torch.tensor(eligible),
        alignment=torch.tensor(alignment, dtype=torch.float64),
        group_index=torch.zeros(len(eligible), dtype=torch.long),
    )


_EXAMPLE = _group([True, True], [0.6, 0.2])


def reward_propositions(scored: ScoredGroups) -> list[Proposition]:
    """Theorem 3, propositions 2 and 3, and what the paper concludes from them."""
    alone = scored.correct_alone()
    return [
        _separation(scored), _separation_in_bad_format(), _non_degradation(alone), _variance(scored),
        _variance_bound(alone), _centered_bonus(alone), _invariant_mean(alone), _positive_advantages(scored),
    ]  # fmt: skip


def _separation(scored: ScoredGroups) -> Proposition:
    rewards, advantages, mixed = scored.rewards(), scored.advantages(), scored.mixed_groups()
    inside = rewards[scored.eligible]

    def separated(rows: Tensor) -> bool:
        correct = scored.eligible[rows]
        return all(values[rows][correct].min() > values[rows][~correct].max() for values in (rewards, advantages))

    return Proposition(
        name="Theorem 3",
        statement="Given P(x), (i) a response inside has at least the base reward 1; (ii) its reward and, within a "
        "group, its advantage are above those of every response outside.",
        result=f"(i) {tally(int((inside >= 1).sum()), len(inside), 'responses inside')}; "
        f"(ii) {tally(sum(map(separated, mixed)), len(mixed), 'mixed groups')}",
        in_general="true: a bonus is at least 0, a penalty at most 0, and advantages keep the order of rewards",
    )


def _separation_in_bad_format() -> Proposition:
    facts = {"verified": torch.tensor([True, False]), "well_formatted": torch.tensor([False, True])}
    facts |= {"group_index": torch.tensor([0, 0]), "num_tokens": torch.tensor([9, 9])}
    batch = ScoredBatch(**facts, alignment=torch.zeros(2).double())
    rewards = METHODS["gar-grpo"].shape(batch, RewardSettings(format_penalty=PENALTY)).rewards
    return Proposition(
        name="Theorem 3, for right answers",
        statement="A right answer has a higher reward than a wrong one.",
        result=f"a right answer in bad format gets {float(rewards[0]):.1f}, a wrong one in good format "
        f"{float(rewards[1]):.1f}",
        in_general="false: counterexample. True where both are well formatted",
        counterexample="P(x) holds well formatted answers alone: the right answer in bad format gets the penalty.",
    )


def _non_degradation(alone: ScoredGroups) -> Proposition:
    kept = int((alone.advantages() >= 0).sum())
    return Proposition(
        name="Theorem 3 (i), carried over to advantages",
        statement="The advantage of a correct response is not below that of the outcome alone.",
        result=f"{tally(kept, len(alone.eligible), 'correct responses')}, each group normalized alone",
        in_general="false: counterexample. True for rewards",
        counterexample="two correct responses with alignment 0.6 and 0.2 get the advantages "
        + " and ".join(f"{value:+.2f}" for value in _EXAMPLE.advantages().tolist())
        + ". Their rewards are never below 1.",
    )


def _variance(scored: ScoredGroups) -> Proposition:
    groups = scored.informative_groups()
    shaped, outcome = scored.advantages(), scored.advantages(beta=0.0)
    good = sum(_span(shaped[rows]) > 0 and _span(outcome[rows]) == 0 for rows in groups)
    return Proposition(
        name="Proposition 2",
        statement="The advantages of the correct responses of a group differ where their alignments do; under the "
        "outcome alone they are equal.",
        result=tally(good, len(groups), "groups"),
        in_general="true: the highest alignment lies above the mean and earns a bonus, the lowest earns none",
    )


def _variance_bound(alone: ScoredGroups) -> Proposition:
    def bound(values: Tensor) -> float:
        return min(1.0, BETA**2 * float(values.var(correction=0)))

    def holds(rows: Tensor) -> bool:
        return float(rewards[rows].var(correction=0)) >= bound(alone.alignment[rows]) * (1 - 1e-9)  # rounding

    rewards, groups = alone.rewards(), alone.informative_groups()
    return Proposition(
        name="Proposition 2, its proof",
        statement="Var r >= min(1, beta^2 Var b) among the correct responses of a group.",
        result=tally(sum(map(holds, groups)), len(groups), "groups"),
        in_general="false: counterexample. True without the clip",
        counterexample="alignments 0.6 and 0.2, both correct: Var r = "
        f"{float(_EXAMPLE.rewards().var(correction=0)):.4f} against {bound(_EXAMPLE.alignment):.4f}. The clip cuts "
        "the lower half of the spread.",
    )


def _centered_bonus(alone: ScoredGroups) -> Proposition:
    centered = group_deviations(alone.alignment, alone.group_index)
    means = [abs(float(centered[rows].mean())) for rows in alone.groups()]
    largest = f", at most {max(means):.0e}" if means else ""
    return Proposition(
        name="Proposition 3",
        statement="The centered alignments of the correct responses of a group have mean 0.",
        result=tally(sum(mean < 1e-12 for mean in means), len(means), "groups") + largest,
        in_general="true: it is what centering means",
    )


def _invariant_mean(alone: ScoredGroups) -> Proposition:
    rewards, groups = alone.rewards(), alone.groups()
    kept = sum(abs(float(rewards[rows].mean()) - 1) < 1e-12 for rows in groups)
    mean = f": mean reward {float(rewards.mean()):.4f}, 1 without the bonus" if groups else ""
    return Proposition(
        name="Appendix G.4",
        statement="Centered bonuses leave the mean reward of a group as it is.",
        result=tally(kept, len(groups), "groups") + mean,
        in_general="false: counterexample. True without the clip",
        counterexample="alignments 0.6 and 0.2, both correct: the mean is "
        f"{float(_EXAMPLE.rewards().mean()):.2f}, not 1.",
    )


def _positive_advantages(scored: ScoredGroups) -> Proposition:
    example = _group([True, True, False, False], [0.6, 0.2, 0.0, 0.0])
    advantages = scored.advantages()
    below = []
    for rows in scored.mixed_groups():
        members = rows[scored.eligible[rows]]
        below.append(members[scored.alignment[members] < scored.alignment[members].mean() - 1e-9])
    values = advantages[torch.cat(below)] if below else advantages[:0]
    return Proposition(
        name="Proposition 4, its reason",
        statement="Only correct responses that align above the mean of their group have a positive advantage.",
        result=tally(int((values <= 0).sum()), len(values), "responses below the mean"),
        in_general="false: counterexample",
        counterexample="alignments 0.6 and 0.2, beside two wrong responses: the second has the advantage "
        f"{float(example.advantages()[1]):+.2f}.",
    )


def cost_proposition(parts: ModelParts) -> Proposition:
    """The paper's cost ratio of head and body against the count of weights."""
    vocab, layers, hidden = 151_936, 36, 4096  # Qwen3-8B
    ratios = {"Qwen3-8B": vocab * hidden / 6_945_767_424, "Qwen3-4B": vocab * 2560 / 3_633_511_936}
    printed = vocab / (layers * hidden)
    body = sum(p.numel() for p in parts.backbone.parameters() if p.ndim == 2 and p.shape != parts.weight.shape)
    counts = [f"{name} {ratio:.3f}" for name, ratio in ratios.items()]
    return Proposition(
        name="Appendix J",
        statement=f"The head costs V / (L d) of the body: {printed:.2f} at the sizes of Qwen3-8B.",
        result=", ".join([*counts, f"this model {parts.weight.numel() / body:.3f}"]),
        in_general="false: counterexample",
        counterexample=f"a layer has about 12 d^2 weights, not d^2: the printed ratio is "
        f"{printed / ratios['Qwen3-8B']:.1f} times too large at Qwen3-8B.",
    )
