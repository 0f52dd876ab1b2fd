"""Input and output records of `GARScorer`."""

from collections.abc import Sequence
from dataclasses import dataclass

from gar.response import SignalStatus
from gar.types import Prompt, Status


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseGroup:
    """All responses to one problem: bonus and advantage compare them with each other.

    Prompt, responses and anchors are text, or the token ids that a training loop has. Ids are used as they are. Text is
    encoded as in training: the prompt as TRL does it (chat messages by the chat template), then the response
    separately.

    Attributes:
        prompt: The prompt that was answered.
        responses: The responses, without or with trailing special tokens.
        anchors: Expert solutions. The best cosine counts. Empty ones are left out. Without any there is no bonus.
        answer: The gold answer, for the scorer's verifier.
        eligible: Your own judgment instead: which responses are right (and well formatted, if that matters to you).
        id: Copied into the scores.
        question: Only the problem as text, for the verifier. Give it if `prompt` is token ids or has instructions.

    Example: ResponseGroup(prompt="3+4=", responses=["7", "8"], anchors=["3+4 is 7"], answer="7")
    """

    prompt: Prompt | Sequence[int]
    responses: Sequence[str | Sequence[int]]
    anchors: Sequence[str] | Sequence[Sequence[int]] = ()
    answer: str | None = None
    eligible: Sequence[bool] | None = None
    id: str = ""
    question: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseScore:
    """The score of one response.

    Attributes:
        id: Identifier of its group.
        group_index: Position of its group in the call.
        response_index: Position in its group.
        status: How verification ended. None if `ResponseGroup.eligible` took its place.
        answer: The final answer that the verifier found.
        verified: The answer is right.
        well_formatted: The response keeps the format.
        eligible: It can earn the base reward and a bonus.
        signal: Whether it has an alignment, and if not, why.
        alignment: Cosine of its vector with its best anchor's. None unless `signal` is scored.
        signal_norm: Norm of its mean vector before scaling. None if none was computed, or it is not finite.
        bonus: `bonus_weight * max(0, alignment - mean of the group)`.
        penalty: Added for bad format, at most 0.
        reward: `correct_reward + bonus + penalty`, or only the penalty.
        advantage: The reward after group normalization.
        num_tokens: Tokens of the response, trailing special ones included.
        num_scored_tokens: Tokens that enter its vector.
        detail: Remarks as text. Empty if there are none.
        tokens: Text of each token. None unless asked for.
        token_shares: Share of each token in the alignment, None outside the span. They add up to the alignment. None
            unless asked for, and unless `signal` is scored.
    """

    id: str
    group_index: int
    response_index: int
    status: Status | None
    answer: str | None
    verified: bool
    well_formatted: bool
    eligible: bool
    signal: SignalStatus
    alignment: float | None
    signal_norm: float | None
    bonus: float
    penalty: float
    reward: float
    advantage: float
    num_tokens: int
    num_scored_tokens: int
    detail: str = ""
    tokens: Sequence[str] | None = None
    token_shares: Sequence[float | None] | None = None
