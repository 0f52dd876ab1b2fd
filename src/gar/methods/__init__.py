"""Methods, the dict that names them, and what an engine declares to run them."""

from gar.methods.base import (
    BONUS_SETTINGS,
    OUTCOME_SETTINGS,
    Method,
    ScoredBatch,
    ShapedRewards,
    eligible_responses,
    outcome_rewards,
)
from gar.methods.gar import gradient_aligned_shape
from gar.methods.plan import Engine, resolve_signal, unread_settings
from gar.methods.registry import METHODS, find_method, register

__all__ = [
    "BONUS_SETTINGS",
    "METHODS",
    "OUTCOME_SETTINGS",
    "Engine",
    "Method",
    "ScoredBatch",
    "ShapedRewards",
    "eligible_responses",
    "find_method",
    "gradient_aligned_shape",
    "outcome_rewards",
    "register",
    "resolve_signal",
    "unread_settings",
]
