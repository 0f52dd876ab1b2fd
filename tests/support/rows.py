"""Rows of rollouts, made up, and groups of responses to a problem."""

from collections.abc import Sequence
from typing import Any

from gar.records import RolloutRecord
from gar.scoring import ResponseGroup
from gar.types import Problem, Status


def group_of(problem: Problem, responses: Sequence[Any], **more: Any) -> ResponseGroup:
    """Responses to a problem, with its expert solutions."""
    anchors = [anchor.text for anchor in problem.anchors]
    return ResponseGroup(**{"prompt": problem.prompt, "responses": responses, "anchors": anchors, **more})


def rollout(step: int = 1, group: int = 0, index: int = 0, **changes: object) -> RolloutRecord:
    """A right response, unless told otherwise."""
    values = dict(
        step=step, problem_id=f"train-{group}", group_index=group, response_index=index, prompt="3+4=",
        response="<think> ? = 7 </think> <answer> 7 </answer>", gold="7", answer="7", status=Status.OK, verified=True,
        well_formatted=True, eligible=True, anchor=True, alignment=0.25, bonus=0.0, penalty=0.0, reward=1.0,
        advantage=0.0, num_tokens=9, truncated=False, num_scored_tokens=3, signal_norm=0.5, prompt_tokens=4,
    )  # fmt: skip
    return RolloutRecord(**(values | changes))
