"""The amplification trap: the advantage that a gap between alignments gives.

python -m paper.analyses.amplification

The group has four correct responses, and the alignment of two of them is larger by the gap. Variant `paper`. Under
REINFORCE++ the group is the whole batch. For comparison: with two right and two wrong responses the advantage is 1.
"""

import torch

from gar import AdvantageSettings
from gar.core import gradient_aligned_bonuses
from gar.integrations.trl import TRL
from gar.scoring import plan_shaping

GAPS = (0.002, 0.02, 0.2)
COLUMNS = {
    "no floor": {},
    "min_std 0.1": {"min_std": 0.1},
    "REINFORCE++": {"estimator": "reinforce-plus-plus"},
}


def advantage(gap: float, settings: dict[str, object]) -> float:
    """Advantage of the better two of an all-correct group."""
    eps = {} if "estimator" in settings else {"eps": 1e-6}
    chosen = AdvantageSettings.model_validate({"ddof": 0, **eps, **settings})
    alignment, groups = torch.tensor([0.6 + gap, 0.6 + gap, 0.6, 0.6]).double(), torch.zeros(4).long()
    rewards = 1.0 + gradient_aligned_bonuses(torch.ones(4).bool(), alignment, groups)
    shaping = plan_shaping(TRL, "gar-grpo", {"advantage": chosen})
    return float(shaping.advantages(rewards, groups, token_counts=torch.ones(4).long())[0])


def table() -> str:
    """The table of docs/how-it-works.md."""
    lines = [f"| gap | {' | '.join(COLUMNS)} |", "|---" * (1 + len(COLUMNS)) + "|"]
    for gap in GAPS:
        lines.append(f"| {gap} | " + " | ".join(f"{advantage(gap, s):.3f}" for s in COLUMNS.values()) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
