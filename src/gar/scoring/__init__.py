"""Vectors and scores from a policy, responses and anchors."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.scoring.anchors import usable_anchors
    from gar.scoring.forward import batches_by_length, signal_means
    from gar.scoring.reader import GroupReader
    from gar.scoring.scorer import GARScorer
    from gar.scoring.scores import ResponseGroup, ResponseScore, SignalStatus
    from gar.sequences import (
        SpanRule,
        context_of,
        ends_in_thinking_tag,
        special_ids,
        token_pieces,
        without_trailing_special,
    )
    from gar.step import ResponseFacts, Row, Shaped, Shaping, Step, StepRanks, plan_shaping, read_row

__all__ = [
    "GARScorer",
    "GroupReader",
    "ResponseFacts",
    "ResponseGroup",
    "ResponseScore",
    "Row",
    "Shaped",
    "Shaping",
    "SignalStatus",
    "SpanRule",
    "Step",
    "StepRanks",
    "batches_by_length",
    "context_of",
    "ends_in_thinking_tag",
    "plan_shaping",
    "read_row",
    "signal_means",
    "special_ids",
    "token_pieces",
    "usable_anchors",
    "without_trailing_special",
]
__getattr__ = lazy_names(__name__)
