"""A response on its way from tokens to a reward, and the anchors that it is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from gar.types import Status, Verdict


class SignalStatus(StrEnum):
    """Whether a response has an alignment, and if not, why."""

    SCORED = "scored"
    SKIPPED = "skipped"
    """It could earn no bonus: not eligible, or the only eligible one of a centered group. Nothing was computed."""
    NO_ANCHOR = "no expert solution"
    """Its group has none, or none that can be used."""
    NO_TOKENS = "no tokens"
    """Nothing to score: an empty response or span, or no prompt before it."""
    UNKNOWN_TOKENS = "unknown tokens"
    """A token id outside the model's vocabulary."""
    TOO_LONG = "too long"
    """Prompt and response reach beyond the model's context."""
    NOT_FINITE = "not finite"
    """The model gave NaN or infinity."""
    NO_DIRECTION = "no direction"
    """Its mean vector is shorter than 1e-8."""


class ScoringFault(NamedTuple):
    """Why a sequence cannot be scored: a status (NO_TOKENS, UNKNOWN_TOKENS or TOO_LONG) and a message."""

    status: SignalStatus
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSequence:
    """A context, the ids that follow it, and the positions in `ids` of the scored tokens.

    Example: TokenSequence(context_ids=[5, 6], ids=[9, 7, 8, 10], positions=[1, 2])
    """

    context_ids: Sequence[int] = ()
    ids: Sequence[int] = ()
    positions: Sequence[int] = ()
    mask: Sequence[int] | None = None
    """0 for ids that the policy did not write (tools). None if it wrote all."""

    @property
    def num_tokens(self) -> int:
        """The number of tokens, context included."""
        return len(self.context_ids) + len(self.ids)

    def cut(self) -> "TokenSequence":
        """The sequence up to its last scored token, without its mask. A causal model needs no later token."""
        return replace(self, ids=self.ids[: self.positions[-1] + 1], mask=None)

    @property
    def scored_ids(self) -> list[int]:
        """The ids of the scored tokens."""
        return [self.ids[position] for position in self.positions]


NO_SEQUENCE = TokenSequence()


class Anchors(NamedTuple):
    """The anchors of a problem that can be scored, and the faults of the others."""

    usable: tuple[TokenSequence, ...] = ()
    faults: tuple[ScoringFault, ...] = ()

    @classmethod
    def unread(cls, count: int) -> "Anchors":
        """This many placeholders, for a method that reads no anchors."""
        return cls((NO_SEQUENCE,) * count)


NO_ANCHORS = Anchors()
UNVERIFIED = Verdict(status=Status.ERROR, grade=0.0, verified=False, well_formatted=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A policy's response to a problem, and its verdict. `gar.reader.Reader` makes it from token ids.

    Example: Response(text="= 7", sequence=TokenSequence(context_ids=[3], ids=[12, 7, 1], positions=[0, 1]))
    """

    group_index: int = 0
    """Which problem it answers."""
    sequence: TokenSequence = NO_SEQUENCE
    """The prompt's tokens and its own, trailing special ones included, and which are scored."""
    text: str = ""
    """What the policy wrote, without trailing special tokens: the verifier's view."""
    prefilled: bool = False
    """The prompt ends in the opening thinking tag."""
    truncated: bool = False
    """It was cut off before its end."""
    empty: bool = False
    """The policy wrote nothing but blanks and special tokens."""
    fault: ScoringFault | None = None
    """Why it cannot be scored."""
    anchors: Anchors = NO_ANCHORS
    """Those of its problem."""
    verdict: Verdict = UNVERIFIED

    @property
    def ids(self) -> Sequence[int]:
        """Its token ids, trailing special ones included."""
        return self.sequence.ids

    @property
    def num_tokens(self) -> int:
        """Its tokens, trailing special ones included."""
        return len(self.sequence.ids)

    @property
    def num_scored_tokens(self) -> int:
        """Tokens that enter its vector."""
        return 0 if self.fault else len(self.sequence.positions)

    @property
    def is_correct(self) -> bool:
        """Verified and well formatted."""
        return self.verdict.verified and self.verdict.well_formatted

    def facts(self) -> "Response":
        """A copy without tokens and texts: every rank holds the copies of all responses."""
        return replace(
            self,
            # Ranges say how many there are.
            sequence=TokenSequence(ids=range(self.num_tokens), positions=range(len(self.sequence.positions))),
            text="",
            fault=self.fault and ScoringFault(self.fault.status, ""),
            anchors=Anchors(
                (NO_SEQUENCE,) * len(self.anchors.usable), tuple(ScoringFault(s, "") for s, _ in self.anchors.faults)
            ),
            verdict=replace(self.verdict, answer=None, detail=""),
        )
