"""One fixed small group from hidden states to advantages: numbers that a change of versions or code must not move.

`python tests/core/test_golden.py` writes the file anew. Do that only for a change that is meant to move them.
"""

import json
import platform
from pathlib import Path

import pytest
import torch

from gar.core import (
    best_alignment_scores,
    gradient_activation_means,
    gradient_aligned_bonuses,
    group_advantages,
    unit_rows,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "core.json"
TOKENS, WIDTH, VOCAB = 30, 6, 17


def compute() -> dict[str, list]:
    """Five responses to problem 7 and their anchor, as row 5. From sines, so that no random generator matters."""
    hidden = torch.sin(torch.arange(TOKENS * WIDTH, dtype=torch.float64) * 1.7).reshape(TOKENS, WIDTH).float()
    weight = torch.cos(torch.arange(VOCAB * WIDTH, dtype=torch.float64) * 2.3).reshape(VOCAB, WIDTH).float()
    batch = (hidden, weight, torch.arange(TOKENS) * 5 % VOCAB, torch.arange(TOKENS) % 6)
    vectors = unit_rows(gradient_activation_means(*batch, num_responses=6))
    with_thresholds = gradient_activation_means(
        *batch, num_responses=6, activation_threshold=0.05, keep_fraction=torch.tensor([1.0] * 5 + [0.7])
    )
    with_softcap = gradient_activation_means(
        *batch, num_responses=6, logit_softcap=2.0, logit_scale=1.5, temperature=0.8, bias=hidden.flatten()[:VOCAB]
    )
    group = torch.full((5,), 7)
    alignment, scored, _ = best_alignment_scores(vectors[:5], group, vectors[5:], torch.tensor([7]))
    eligible = torch.tensor([True, True, False, True, False])
    penalty = torch.tensor([0.0, 0.0, 0.0, 0.0, -0.6])
    bonuses = gradient_aligned_bonuses(eligible, alignment.double(), group, scored=scored)
    rewards = (eligible.double() + bonuses + penalty.double()).float()
    return {
        "vectors": vectors.tolist(),
        "means_with_thresholds": with_thresholds.tolist(),
        "means_with_softcap": with_softcap.tolist(),
        "alignment": alignment.tolist(),
        "rewards": rewards.tolist(),
        "advantages_paper": group_advantages(rewards, group, scale="std", ddof=0, eps=1e-6).tolist(),
        "advantages_trl": group_advantages(rewards, group, scale="std", ddof=1, eps=1e-4).tolist(),
    }


def test_golden_numbers_of_the_core_have_not_moved():
    golden = json.loads(GOLDEN.read_text())
    found = compute()
    assert found.keys() == golden["numbers"].keys()
    for name, numbers in golden["numbers"].items():
        # float32 through another BLAS: some 1e-7 of numbers of size 1. The advantages divide by a std of 0.6.
        message = f"{name} moved; the golden numbers were made with {golden['versions']}"
        assert torch.tensor(found[name]).tolist() == [pytest.approx(row, abs=2e-6) for row in numbers], message


if __name__ == "__main__":
    versions = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
    GOLDEN.write_text(json.dumps({"versions": versions, "numbers": compute()}, indent=1) + "\n")
