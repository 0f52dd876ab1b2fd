"""Check a few rollouts before the first step. If there is no reward signal, say why.

If all responses are cut off, badly formatted or wrong, a run trains for hours and learns nothing.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text
from transformers import PreTrainedModel

from gar.errors import PreflightError
from gar.evaluation.evaluate import Sampling, sample_groups
from gar.evaluation.metrics import mean
from gar.evaluation.results import Group
from gar.rollouts.generate import Response
from gar.settings import PreflightSettings
from gar.types import Problem, ResponseVerifier, Status, Verdict
from gar.verify import count_statuses

MOST = 0.5
"""Above this fraction a failure is the rule: truncation, timeouts and errors then stop the run."""
SOME = 0.1
"""Above this fraction a failure is worth a warning."""
_EXAMPLE_CHARACTERS = 160

CORRECT, CUT_OFF, BAD_FORMAT = "correct: verified and well formatted", "cut off without an end token", "badly formatted"
RIGHT_IN_BAD_FORMAT, ALL_CORRECT, ALL_WRONG = "right answer in bad format", "groups all correct", "groups all wrong"
PREFILLED, NO_ANCHOR = "prompts that already open the thinking part", "problems without an expert solution"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One fault of the rollouts. `example` is a response that shows it, or empty.

    Example: Finding(severity="stop", what="97% of responses reach max_completion_length 32 without an end token",
        cause="...", advice="Raise --trl.max_completion_length.", example="train-3: '<think> 3 + 4 ...'")
    """

    severity: Literal["stop", "warn"]
    what: str
    cause: str
    advice: str
    example: str = ""

    def __str__(self) -> str:
        text = f"{self.what}. {self.cause} {self.advice}"
        return f"{text}\n  For example {self.example}" if self.example else text


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightReport:
    """Statistics of a few rollouts, and their faults.

    Attributes:
        groups: The responses, one group per problem.
        shares: Fractions by label, in the order of the table.
        findings: Those that stop a run first. An example is shown once.
    """

    groups: tuple[Group, ...]
    shares: Mapping[str, float]
    findings: tuple[Finding, ...]

    def raise_if_stop(self) -> None:
        """Raise an error if a finding says stop.

        Raises:
            PreflightError: With the text of every such finding.
        """
        stops = [str(finding) for finding in self.findings if finding.severity == "stop"]
        if stops:
            raise PreflightError(
                f"{_num_responses(self.groups)} responses to {len(self.groups)} problems, before the first step, show "
                "that training would waste its budget:\n"
                + "\n".join(f"- {stop}" for stop in stops)
                + "\nTo train anyway: --preflight.mode warn."
            )


def preflight(
    model: PreTrainedModel,
    tokenizer: Any,
    problems: Sequence[Problem],
    verifier: ResponseVerifier,
    settings: PreflightSettings,
    sampling: Sampling,
    *,
    needs_alignment: bool,
) -> PreflightReport:
    """Sample a few groups as training will, and find their faults. The caller acts on `settings.mode`.

    `settings.num_problems` are drawn with `sampling.seed`, and sampled as training samples them.

    Raises:
        DataError: There are no problems, or a prompt does not fit into the context.
        ModelError: As `generate_responses`.
    """
    drawn = random.Random(sampling.seed).sample(range(len(problems)), min(settings.num_problems, len(problems)))
    few = [problems[i] for i in sorted(drawn)]
    groups = sample_groups(
        model, tokenizer, few, verifier, sampling, num_samples=settings.num_samples, progress="preflight"
    )
    shares = _shares(groups, problems)
    limit = (sampling.generation_kwargs or {}).get("max_new_tokens", sampling.max_new_tokens)
    found = [
        *_faults_of_texts(groups, shares, verifier, f"{limit}", repr(tokenizer.eos_token)),
        *_faults_of_answers(groups, shares),
        *_faults_of_groups(shares, needs_alignment),
    ]
    found.sort(key=lambda finding: finding.severity != "stop")
    examples = [finding.example for finding in found]
    once = [replace(each, example="") if each.example in examples[:i] else each for i, each in enumerate(found)]
    return PreflightReport(groups=groups, shares=shares, findings=tuple(once))


def render(report: PreflightReport, *, with_stops: bool = True) -> Lines:
    """The report for a terminal: a table of fractions, then the findings.

    `with_stops` includes the findings that would stop the run, as warnings: the error of `raise_if_stop` has them.
    """
    table = Table(title=f"Preflight: {len(report.groups)} problems, {report.groups[0].num_samples} responses each")
    table.add_column("what")
    table.add_column("share", justify="right")
    for label, fraction in report.shares.items():
        table.add_row(label, _percent(fraction))
    lines = [
        Text(f"WARN: {finding}", style="bold red" if finding.severity == "stop" else "yellow")
        for finding in report.findings
        if with_stops or finding.severity != "stop"
    ]
    return Lines(table, *lines, *([] if report.findings else [Text("No faults.", style="green")]))


def _shares(groups: Sequence[Group], problems: Sequence[Problem]) -> dict[str, float]:
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    statuses = {f"verification: {status.value}": n / len(verdicts) for status, n in count_statuses(verdicts).items()}
    return {
        CORRECT: mean(v.verified and v.well_formatted for v in verdicts),
        CUT_OFF: mean(response.truncated for group in groups for response in group.responses),
        BAD_FORMAT: mean(not v.well_formatted for v in verdicts),
        RIGHT_IN_BAD_FORMAT: mean(v.verified and not v.well_formatted for v in verdicts),
        ALL_CORRECT: mean(group.num_correct == group.num_samples for group in groups),
        ALL_WRONG: mean(group.num_correct == 0 for group in groups),
        PREFILLED: mean(group.prefilled for group in groups),
        NO_ANCHOR: mean(not problem.anchors for problem in problems),
        **statuses,
    }


def _faults_of_texts(
    groups: Sequence[Group], shares: Mapping[str, float], verifier: ResponseVerifier, limit: str, end_token: str
) -> Iterator[Finding]:
    cut_off, bad, tags = shares[CUT_OFF], shares[BAD_FORMAT], verifier.tags
    if cut_off > SOME:
        yield Finding(
            severity="stop" if cut_off > MOST else "warn",
            what=f"{_percent(cut_off)} of responses reach max_completion_length {limit} without an end",
            cause=f"The limit is shorter than the model's answers, or the model does not end them with {end_token}.",
            advice="Raise --trl.max_completion_length, or set the tokenizer's eos_token to what the model ends with.",
            example=_example(groups, lambda response, _: response.truncated),
        )
    empty = mean(not response.text.strip() for group in groups for response in group.responses)
    if empty > MOST:
        yield Finding(
            severity="stop" if 1 in (empty, bad) else "warn",
            what=f"{_percent(empty)} of responses are empty",
            cause="The model ends where it should begin.",
            advice="An instruction-tuned model needs chat messages: --data.template boxed makes them. Otherwise "
            "compare the prompts' end with what the model was trained on.",
            example=_example(groups, lambda response, _: not response.text.strip()),
        )
    if bad <= MOST or empty > MOST:
        return
    if cut_off > MOST:
        cause = "Most responses are cut off before they could complete it."
        advice = "Raise --trl.max_completion_length first."
    elif shares[PREFILLED] > 0 and verifier.format == "think-answer":
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
    yield Finding(
        severity="stop" if bad == 1 else "warn",
        what=f"{_percent(bad)} of responses are not in the format {verifier.format!r}",
        cause=cause,
        advice=advice,
        example=_example(groups, lambda _, verdict: not verdict.well_formatted),
    )


_ADVICE = {
    Status.TIMEOUT: "Raise --verify.timeout_seconds, or look for answers that take very long to simplify.",
    Status.ERROR: "The error's text follows the example: is the gold answer unreadable (`gar data check` lists those), "
    "or does a grader of your own fail?",
}


def _faults_of_answers(groups: Sequence[Group], shares: Mapping[str, float]) -> Iterator[Finding]:
    formatted = [verdict for group in groups for verdict in group.verdicts if verdict.well_formatted]
    unparsed = mean(verdict.status is Status.UNPARSED for verdict in formatted) if formatted else 0.0
    if unparsed > SOME:
        yield Finding(
            severity="stop" if unparsed == 1 else "warn",
            what=f"{_percent(unparsed)} of well-formatted responses hold no answer that can be parsed",
            cause="The answer part is neither a number nor a formula, or not exactly one value (`3 or 7`).",
            advice="Ask for the final answer alone there, or give your own grader with --verify.verifier.",
            example=_example(groups, lambda _, v: v.well_formatted and v.status is Status.UNPARSED),
        )
    for status, advice in _ADVICE.items():
        if fraction := shares[f"verification: {status.value}"]:
            yield Finding(
                severity="stop" if fraction > MOST else "warn",
                what=f"verification of {_percent(fraction)} of responses ended in {status.value}",
                cause="Such a response earns nothing, whatever its answer.",
                advice=advice,
                example=_example(groups, lambda _, verdict, status=status: verdict.status is status),
            )
    in_bad_format = shares[RIGHT_IN_BAD_FORMAT]
    if shares[CORRECT] == 0:
        if in_bad_format > 0:
            cause = f"{_percent(in_bad_format)} have the right answer, but in bad format."
            advice = "Make the format right first."
        elif shares[CUT_OFF] > MOST or shares[BAD_FORMAT] == 1:
            cause, advice = "Few of them are complete and readable.", "See the other findings."
        else:
            cause = "The problems are too hard for this model, or its answers have another form than the gold answers."
            advice = "Compare the answers below with their gold. Take easier problems, or a better model."
        yield Finding(
            severity="stop",
            what=f"no response of {_num_responses(groups)} is correct",
            cause=cause,
            advice=f"{advice} To look at more of them: --preflight.num_problems, --preflight.num_samples.",
            example=_example(groups, lambda *_: True),
        )
    if in_bad_format > SOME:
        yield Finding(
            severity="warn",
            what=f"{_percent(in_bad_format)} of responses have the right answer in bad format",
            cause="They earn the penalty alone, less than a wrong answer in good format does.",
            advice="Ask for the format in the prompt (--data.template), or choose --verify.format none.",
            example=_example(groups, lambda _, verdict: verdict.verified and not verdict.well_formatted),
        )


def _faults_of_groups(shares: Mapping[str, float], needs_alignment: bool) -> Iterator[Finding]:
    if MOST < shares[ALL_WRONG] < 1:
        yield Finding(
            severity="warn",
            what=f"in {_percent(shares[ALL_WRONG])} of groups every response is wrong",
            cause="The problems are hard for this model, and no method learns from a group without a right answer.",
            advice="Expect slow progress. Take easier problems, or more responses per problem.",
        )
    elif shares[ALL_CORRECT] > MOST and not needs_alignment:
        yield Finding(
            severity="warn",
            what=f"in {_percent(shares[ALL_CORRECT])} of groups every response is correct",
            cause="The problems are easy for this model, and equal rewards in a group give no advantage.",
            advice="Take harder problems, or --method gar-grpo, which tells correct responses apart.",
        )
    if needs_alignment and shares[NO_ANCHOR] > SOME:
        yield Finding(
            severity="stop" if shares[NO_ANCHOR] == 1 else "warn",
            what=f"{_percent(shares[NO_ANCHOR])} of problems have no expert solution",
            cause="Without one a response earns no bonus, and the method is plain GRPO there.",
            advice="Name the column with --data.anchor_fields, or train with --method grpo.",
        )


def _example(groups: Sequence[Group], wanted: Callable[[Response, Verdict], bool]) -> str:
    """The first response of a kind, shortened: problem, gold, text, and the verifier's explanation."""
    for group in groups:
        for response, verdict in zip(group.responses, group.verdicts, strict=True):
            if wanted(response, verdict):
                text = response.text
                shown = repr(text[:_EXAMPLE_CHARACTERS]) + ("..." if len(text) > _EXAMPLE_CHARACTERS else "")
                detail = f" ({verdict.detail})" if verdict.detail else ""
                return f"problem {group.problem.id!r}, gold {group.problem.answer!r}: {shown}{detail}"
    return ""


def _num_responses(groups: Sequence[Group]) -> int:
    return sum(group.num_samples for group in groups)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g}%"
