"""Names of the metrics that `gar` logs, each written only here. docs/glossary.md defines them."""

REWARD = "reward"
"""TRL's."""

VERIFIED = "gar/verified_fraction"
WELL_FORMATTED = "gar/well_formatted_fraction"
ELIGIBLE = "gar/eligible_fraction"
SCORED = "gar/scored_fraction"
ALIGNMENT = "gar/alignment_mean"
ALIGNMENT_STD = "gar/alignment_std"
BONUS = "gar/bonus_mean"
OUTCOME = "gar/outcome_mean"
ZERO_STD_OUTCOME = "gar/zero_std_group_fraction_outcome"
ZERO_STD_SHAPED = "gar/zero_std_group_fraction_shaped"
NO_ANCHOR = "gar/no_anchor_fraction"
NO_SIGNAL = "gar/no_signal_fraction"
TOO_LONG = "gar/too_long_fraction"
ANCHOR_TOO_LONG = "gar/anchor_too_long_fraction"
EMPTY = "gar/empty_fraction"
TRUNCATED = "gar/truncated_fraction"
ADVANTAGE = "gar/advantage_abs_mean"
CHANGED_WEIGHTS = "gar/changed_weight_fraction"
GAR_SECONDS = "gar/seconds"
"""Of GAR's part of a step under slime."""

EVALUATION = "eval/"
"""Begins the names of evaluations."""


def with_status(status: str) -> str:
    """The share of responses with a `gar.types.Status`."""
    return f"verify/{status}_fraction"


def seconds_of(part: str) -> str:
    """The time of a part of a step under TRL: "step" for all of it, or one of `PARTS`."""
    return f"time/{part}_seconds"


def pass_at(k: int, evaluation: str) -> str:
    """pass@k on an evaluation set during training."""
    return f"{EVALUATION}{evaluation}/pass@{k}"
