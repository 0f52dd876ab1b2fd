"""Vectors and scores from a policy, responses and anchors."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gar.scoring.forward import batches_by_length, means_from_hidden, signal_means, token_shares
    from gar.scoring.scorer import GarScorer
    from gar.scoring.scores import ResponseGroup, ResponseScore, SignalStatus

__all__ = [
    "GarScorer",
    "ResponseGroup",
    "ResponseScore",
    "SignalStatus",
    "batches_by_length",
    "means_from_hidden",
    "signal_means",
    "token_shares",
]


def __getattr__(name: str) -> Any:
    """Import the modules that need torch on first access: the command line reads `job.py` without torch."""
    if name in __all__:
        from gar.scoring import forward, scorer

        return getattr(scorer if hasattr(scorer, name) else forward, name)
    raise AttributeError(f"module 'gar.scoring' has no attribute '{name}'")
