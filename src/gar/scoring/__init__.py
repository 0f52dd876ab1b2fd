"""Vectors and scores from a policy, responses and anchors."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.models.rope import context_of
    from gar.reader import (
        Reader,
        SpanRule,
        ends_in_thinking_tag,
        judge,
        special_ids,
        token_pieces,
        without_trailing_special,
    )
    from gar.response import Anchors, Response, ScoringFault, SignalStatus
    from gar.scoring.anchors import check_anchors
    from gar.scoring.filtering import signal_key
    from gar.scoring.forward import batches_by_length, signal_means, step_means
    from gar.scoring.scorer import GARScorer
    from gar.scoring.scores import ResponseGroup, ResponseScore
    from gar.step import Shaping, Step, StepRanks, plan_shaping
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "Anchors",
    "GARScorer",
    "Reader",
    "Response",
    "ResponseGroup",
    "ResponseScore",
    "ScoringFault",
    "Shaping",
    "SignalStatus",
    "SpanRule",
    "Step",
    "StepRanks",
    "batches_by_length",
    "check_anchors",
    "context_of",
    "ends_in_thinking_tag",
    "judge",
    "plan_shaping",
    "signal_key",
    "signal_means",
    "special_ids",
    "step_means",
    "token_pieces",
    "without_trailing_special",
]
