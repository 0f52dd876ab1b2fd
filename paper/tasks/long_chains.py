"""Chains of 9 to 12 operations with many groups that are all wrong: the problems of `paper/comparisons/guided.md`.

    python -m paper.tasks long-chains        # runs/tasks/long-chains/{train,validation,test}.jsonl

`python -m paper.tasks.make_model --task long-chains --out runs/models/long-chains` trains the model that meets them.
"""

from functools import cache

from gar import Problem
from gar.data import arithmetic
from paper.tasks.chains import ARITHMETIC

LONG_CHAINS = "long-chains"
"""The name of the task."""
NUM_OPERATIONS = (9, 10, 11, 12)
NUM_PROBLEMS = {"train": 1000, "validation": 200, "test": 200}
WORDING = "{prompt} {beginning}"
"""How a prompt holds the beginning of a solution: the model has no words for more."""
_SEED = 91


@cache
def long_chains() -> dict[str, list[Problem]]:
    """The problems of every split. They are always the same, and no problem is in two splits."""
    operations = dict.fromkeys(NUM_PROBLEMS, NUM_OPERATIONS)
    return arithmetic.draw_splits(_SEED, ARITHMETIC.draw, NUM_PROBLEMS, operations)
