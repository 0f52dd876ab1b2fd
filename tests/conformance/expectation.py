"""The rewards that every engine must give for the seven groups: the core's arithmetic, with a pass for each sequence.

The core returns vectors and cosines in float32, so the expectation is exact to 1e-7. An engine gives rewards to 1e-6,
and advantages by its own rule for the group's spread.
"""

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gar.core import (
    alignment_scores,
    gradient_activation_means,
    gradient_aligned_bonuses,
    group_advantages,
    group_standard_deviations,
    unit_rows,
)
from gar.models.embedded import load_embedded
from gar.response import NO_SEQUENCE, TokenSequence
from tests.conformance.groups import encode, make_rollouts

RESULTS = Path(__file__).parents[2] / "results" / "conformance"
RECORD = "GAR_RECORD_CONFORMANCE"
"""Environment variable: if it is set, the tests write their results to `RESULTS`, and then compare."""

TOLERANCE = 1e-6
"""Of a reward. Of an advantage it is divided by the engine's divisor of the group."""

RULES: dict[str, dict[str, Any]] = {
    "paper": {"ddof": 0, "eps": 1e-6},
    "trl": {"ddof": 1, "eps": 1e-4},
    "slime": {"ddof": 1, "eps": 1e-6},
    "verl": {"ddof": 1, "eps": 1e-6},
}
"""Each engine's documented way from a group's rewards to advantages: (reward - mean) / (std + eps)."""


@cache
def expected_rewards() -> Tensor:
    """Rewards of all responses, float64."""
    rollouts = make_rollouts()
    solutions = [(r.problem.prompt, r.problem.anchors) for r in rollouts]
    anchors = [encode(prompt, anchors[0].text) if anchors else NO_SEQUENCE for prompt, anchors in solutions]
    eligible = torch.tensor([r.verified and r.well_formatted for r in rollouts])
    bonuses = gradient_aligned_bonuses(
        eligible,
        alignment_scores(_vectors([r.sequence for r in rollouts]), _vectors(anchors)).double(),
        group_index(),
        scored=torch.tensor([bool(r.sequence.positions and r.problem.anchors) for r in rollouts]),
        bonus_weight=0.5,
    )
    penalties = torch.tensor([0.0 if r.well_formatted else -0.6 for r in rollouts], dtype=torch.float64)
    return eligible.double() + bonuses + penalties


def expected_advantages(engine: str) -> Tensor:
    """Advantages of all responses by the engine's rule, float64."""
    return group_advantages(expected_rewards(), group_index(), scale="std", **RULES[engine])


def divisors(rule: str) -> Tensor:
    """The rule's divisor of each response's group."""
    spread = group_standard_deviations(expected_rewards(), group_index(), ddof=RULES[rule]["ddof"])
    return spread + RULES[rule]["eps"]


def group_index() -> Tensor:
    return torch.tensor([rollout.group_index for rollout in make_rollouts()])


def check_engine(engine: str, *, version: str, rewards: Sequence[float], advantages: Sequence[float]) -> None:
    """Compare an engine's results, in the order of `make_rollouts`. With `RECORD` set, write them first."""
    record(engine, {"version": version, "rewards": list(rewards), "advantages": list(advantages)})
    saved = read_results(engine)
    check_numbers(engine, rewards, advantages)
    check_numbers(engine, saved["rewards"], saved["advantages"])  # the source of the page's table


def check_numbers(rule: str, rewards: Sequence[float], advantages: Sequence[float]) -> None:
    """Compare rewards with the expected ones, and advantages by a rule in `RULES`."""
    expected, zero_std = expected_advantages(rule), divisors(rule) == RULES[rule]["eps"]
    torch.testing.assert_close(torch.tensor(rewards).double(), expected_rewards(), rtol=0, atol=TOLERANCE)
    errors = (torch.tensor(advantages).double() - expected).abs()
    assert bool((errors <= TOLERANCE / divisors(rule)).all()), errors * divisors(rule)
    assert bool((errors[zero_std] == 0).all())  # a group without a spread teaches nothing, to the last bit


def record(name: str, found: dict) -> None:
    """Write results if `RECORD` is set."""
    if os.environ.get(RECORD):
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


def read_results(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


@torch.no_grad()
def _vectors(sequences: Sequence[TokenSequence]) -> Tensor:
    """Unit gradient-activation vectors, zero without scored tokens."""
    model = load_embedded()[0].double()
    means = torch.zeros(len(sequences), model.config.hidden_size, dtype=torch.float64)
    for mean, sequence in zip(means, sequences, strict=True):
        if sequence.positions:
            ids = torch.tensor([[*sequence.context_ids, *sequence.ids]])
            hidden = model.model(input_ids=ids).last_hidden_state[0]
            places = torch.tensor(sequence.positions) + len(sequence.context_ids)
            index = torch.zeros_like(places)
            mean[:] = gradient_activation_means(
                hidden[places - 1], model.lm_head.weight, ids[0, places], index, num_responses=1
            )[0]
    return unit_rows(means)
