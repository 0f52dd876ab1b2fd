"""Vectors and scores from a policy, responses and anchors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gar.scoring.anchors import usable_anchors
    from gar.scoring.forward import batches_by_length, means_from_hidden, signal_means, token_shares
    from gar.scoring.scorer import GarScorer
    from gar.scoring.scores import ResponseGroup, ResponseScore, SignalStatus
    from gar.shaping import RewardTable, ShapedTable, Shaping, VectorPlan, plan_shaping, read_row
    from gar.spans import special_ids, without_trailing_special

__all__ = [
    "GarScorer",
    "ResponseGroup",
    "ResponseScore",
    "RewardTable",
    "ShapedTable",
    "Shaping",
    "SignalStatus",
    "VectorPlan",
    "batches_by_length",
    "means_from_hidden",
    "plan_shaping",
    "read_row",
    "signal_means",
    "special_ids",
    "token_shares",
    "usable_anchors",
    "without_trailing_special",
]
_MODULES = {
    "gar.scoring.anchors": "usable_anchors",
    "gar.scoring.forward": "batches_by_length means_from_hidden signal_means token_shares",
    "gar.scoring.scorer": "GarScorer",
    "gar.scoring.scores": "ResponseGroup ResponseScore SignalStatus",
    "gar.shaping": "RewardTable ShapedTable Shaping VectorPlan plan_shaping read_row",
    "gar.spans": "special_ids without_trailing_special",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when first asked for."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'gar.scoring' has no attribute '{name}'")
