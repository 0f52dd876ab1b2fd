"""The faults that rollouts of a policy can have: how often, why, and what to change. One function per fault."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gar.evaluation.metrics import mean
from gar.evaluation.results import Group
from gar.rollouts.generate import Response
from gar.types import Problem, ResponseVerifier, Status, Verdict
from gar.verify import count_statuses

MOST = 0.5
"""Above this fraction a failure is the rule: truncation, timeouts and errors then stop the run."""
SOME = 0.1
"""Above this fraction a failure is worth a warning."""

_EXAMPLE_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One fault of the rollouts.

    `fraction` is the number that `what` states. `example` is a response that shows the fault, or empty.

    Example: Finding(severity="stop", fraction=0.97, what="97% of responses reach max_completion_length 32 without an
        end token", cause="...", advice="Raise --trl.max_completion_length.", example="train-3: '<think> 3 + 4 ...'")
    """

    severity: Literal["stop", "warn"]
    what: str
    fraction: float
    cause: str
    advice: str
    example: str = ""

    def __str__(self) -> str:
        text = f"{self.what}. {self.cause} {self.advice}"
        return f"{text}\n  For example {self.example}" if self.example else text


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutFacts:
    """Statistics of a few groups.

    Attributes:
        groups: The responses, one group per problem.
        correct_fraction: Share of responses that are verified and well formatted.
        truncated_fraction: Share of responses without an end token within the limit.
        badly_formatted_fraction: Share of responses that are not in the verifier's format.
        verified_badly_formatted_fraction: Share of responses with a right answer in bad format, which earn the penalty.
        all_correct_fraction: Share of groups in which every response is correct.
        all_wrong_fraction: Share of groups in which no response is correct.
        prefilled_fraction: Share of groups whose prompt already opens the thinking part.
        missing_anchor_fraction: Share of all training problems that have no expert solution.
        status_fractions: Shares of responses by how their verification ended.
    """

    groups: tuple[Group, ...]
    correct_fraction: float
    truncated_fraction: float
    badly_formatted_fraction: float
    verified_badly_formatted_fraction: float
    all_correct_fraction: float
    all_wrong_fraction: float
    prefilled_fraction: float
    missing_anchor_fraction: float
    status_fractions: Mapping[Status, float]

    @classmethod
    def from_groups(cls, groups: Sequence[Group], problems: Sequence[Problem]) -> "RolloutFacts":
        """Count `groups`, and the anchors of all `problems`."""
        verdicts = [verdict for group in groups for verdict in group.verdicts]
        return cls(
            groups=tuple(groups),
            correct_fraction=mean(v.verified and v.well_formatted for v in verdicts),
            truncated_fraction=mean(response.truncated for group in groups for response in group.responses),
            badly_formatted_fraction=mean(not v.well_formatted for v in verdicts),
            verified_badly_formatted_fraction=mean(v.verified and not v.well_formatted for v in verdicts),
            all_correct_fraction=mean(group.num_correct == group.num_samples for group in groups),
            all_wrong_fraction=mean(group.num_correct == 0 for group in groups),
            prefilled_fraction=mean(group.prefilled for group in groups),
            missing_anchor_fraction=mean(not problem.anchors for problem in problems),
            status_fractions={status: count / len(verdicts) for status, count in count_statuses(verdicts).items()},
        )


def find_faults(
    facts: RolloutFacts, verifier: ResponseVerifier, *, needs_alignment: bool, max_new_tokens: int, end_token: str
) -> tuple[Finding, ...]:
    """Find every fault of the rollouts, those that should stop a run first. Arguments as in `preflight`."""
    findings = [
        _cut_off(facts, max_new_tokens, end_token),
        _bad_format(facts, verifier),
        _unparsed(facts),
        _undecided(facts, Status.TIMEOUT),
        _undecided(facts, Status.ERROR),
        _none_correct(facts),
        _right_in_bad_format(facts),
        _zero_std_groups(facts, needs_alignment),
        _missing_anchors(facts) if needs_alignment else None,
    ]
    return tuple(sorted((f for f in findings if f), key=lambda finding: finding.severity != "stop"))


def percent(fraction: float) -> str:
    """A fraction as text: `97%`."""
    return f"{100 * fraction:.3g}%"


def _example(facts: RolloutFacts, wanted: Callable[[Response, Verdict], bool]) -> str:
    """The first response of a kind, shortened: problem, gold, text, and the verifier's explanation."""
    for group in facts.groups:
        for response, verdict in zip(group.responses, group.verdicts, strict=True):
            if wanted(response, verdict):
                text = response.text
                shown = repr(text[:_EXAMPLE_CHARACTERS]) + ("..." if len(text) > _EXAMPLE_CHARACTERS else "")
                detail = f" ({verdict.detail})" if verdict.detail else ""
                return f"problem {group.problem.id!r}, gold {group.problem.answer!r}: {shown}{detail}"
    return ""


def _cut_off(facts: RolloutFacts, max_new_tokens: int, end_token: str) -> Finding | None:
    fraction = facts.truncated_fraction
    if fraction <= SOME:
        return None
    return Finding(
        severity="stop" if fraction > MOST else "warn",
        what=f"{percent(fraction)} of responses reach max_completion_length {max_new_tokens} without an end",
        fraction=fraction,
        cause=f"The limit is shorter than the model's answers, or the model does not end them with {end_token!r}.",
        advice="Raise --trl.max_completion_length, or set the tokenizer's eos_token to what the model ends with.",
        example=_example(facts, lambda response, _: response.truncated),
    )


def _bad_format(facts: RolloutFacts, verifier: ResponseVerifier) -> Finding | None:
    fraction, tags = facts.badly_formatted_fraction, verifier.tags
    if fraction <= MOST:
        return None
    if facts.truncated_fraction > MOST:
        cause = "Most responses are cut off before they could complete it."
        advice = "Raise --trl.max_completion_length first."
    elif mean(not r.text.strip() for group in facts.groups for r in group.responses) > MOST:
        cause = "Most responses are empty: the model ends where it should begin."
        advice = "Compare the prompts' end with what the model was trained on (chat template, white space)."
    elif facts.prefilled_fraction > 0 and verifier.format == "think-answer":
        cause = (
            f"The prompt ends in {tags.think_open}, so a response must not open it again, has to close it with "
            f"{tags.think_close}, and then answer in {tags.answer_open}."
        )
        advice = "Choose --verify.format boxed or none, or a chat template that does not open the thinking part."
    else:
        cause = "The prompt does not ask for this format and the model never learned it, or it uses other markers."
        advice = (
            f"Ask for it with --data.template {verifier.format}, name your markers in --verify.tags, or choose another "
            "--verify.format."
        )
    return Finding(
        severity="stop" if fraction == 1 else "warn",
        what=f"{percent(fraction)} of responses are not in the format {verifier.format!r}",
        fraction=fraction,
        cause=cause,
        advice=advice,
        example=_example(facts, lambda _, verdict: not verdict.well_formatted),
    )


def _unparsed(facts: RolloutFacts) -> Finding | None:
    verdicts = [verdict for group in facts.groups for verdict in group.verdicts if verdict.well_formatted]
    fraction = mean(verdict.status is Status.UNPARSED for verdict in verdicts) if verdicts else 0.0
    if fraction <= SOME:
        return None
    return Finding(
        severity="stop" if fraction == 1 else "warn",
        what=f"{percent(fraction)} of well-formatted responses hold no answer that can be parsed",
        fraction=fraction,
        cause="The answer part is neither a number nor a formula, or not exactly one value (`3 or 7`).",
        advice="Ask for the final answer alone there, or give your own grader with --verify.verifier.",
        example=_example(facts, lambda _, v: v.well_formatted and v.status is Status.UNPARSED),
    )


def _undecided(facts: RolloutFacts, status: Status) -> Finding | None:
    fraction = facts.status_fractions[status]
    if fraction == 0:
        return None
    advice = {
        Status.TIMEOUT: "Raise --verify.timeout_seconds, or look for answers that take very long to simplify.",
        Status.ERROR: "The error's text follows the example: is the gold answer unreadable (`gar data check` lists "
        "those), or does a grader of your own fail?",
    }
    return Finding(
        severity="stop" if fraction > MOST else "warn",
        what=f"verification of {percent(fraction)} of responses ended in {status.value}",
        fraction=fraction,
        cause="Such a response earns nothing, whatever its answer.",
        advice=advice[status],
        example=_example(facts, lambda _, verdict: verdict.status is status),
    )


def _none_correct(facts: RolloutFacts) -> Finding | None:
    if facts.correct_fraction > 0:
        return None
    if facts.verified_badly_formatted_fraction > 0:
        share = percent(facts.verified_badly_formatted_fraction)
        cause, advice = f"{share} have the right answer, but in bad format.", "Make the format right first."
    elif facts.truncated_fraction > MOST or facts.badly_formatted_fraction == 1:
        cause, advice = "Few of them are complete and readable.", "See the other findings."
    else:
        cause = "The problems are too hard for this model, or its answers have another form than the gold answers."
        advice = "Compare the answers below with their gold; take easier problems, or a better model."
    return Finding(
        severity="stop",
        what=f"no response of {sum(group.num_samples for group in facts.groups)} is correct",
        fraction=0.0,
        cause=cause,
        advice=f"{advice} To look at more of them: --preflight.num_problems, --preflight.num_samples.",
        example=_example(facts, lambda *_: True),
    )


def _right_in_bad_format(facts: RolloutFacts) -> Finding | None:
    fraction = facts.verified_badly_formatted_fraction
    if fraction <= SOME:
        return None
    return Finding(
        severity="warn",
        what=f"{percent(fraction)} of responses have the right answer in bad format",
        fraction=fraction,
        cause="They earn the penalty alone, less than a wrong answer in good format does.",
        advice="Ask for the format in the prompt (--data.template), or choose --verify.format none.",
        example=_example(facts, lambda _, verdict: verdict.verified and not verdict.well_formatted),
    )


def _zero_std_groups(facts: RolloutFacts, needs_alignment: bool) -> Finding | None:
    if MOST < facts.all_wrong_fraction < 1:
        fraction, kind = facts.all_wrong_fraction, "wrong"
        cause = "The problems are hard for this model, and no method learns from a group without a right answer."
        advice = "Expect slow progress; take easier problems, or more responses per problem."
    elif facts.all_correct_fraction > MOST and not needs_alignment:
        fraction, kind = facts.all_correct_fraction, "correct"
        cause = "The problems are easy for this model, and equal rewards in a group give no advantage."
        advice = "Take harder problems, or --method gar-grpo, which tells correct responses apart."
    else:
        return None
    return Finding(
        severity="warn",
        what=f"in {percent(fraction)} of groups every response is {kind}",
        fraction=fraction,
        cause=cause,
        advice=advice,
    )


def _missing_anchors(facts: RolloutFacts) -> Finding | None:
    fraction = facts.missing_anchor_fraction
    if fraction <= SOME:
        return None
    return Finding(
        severity="stop" if fraction == 1 else "warn",
        what=f"{percent(fraction)} of problems have no expert solution",
        fraction=fraction,
        cause="Without one a response earns no bonus, and the method is plain GRPO there.",
        advice="Name the column with --data.anchor_fields, or train with --method grpo.",
    )
