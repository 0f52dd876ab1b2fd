"""Check a few rollouts before the first step. If there is no reward signal, say why.

If all responses are cut off, badly formatted or wrong, a run trains for hours and learns nothing.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text
from transformers import PreTrainedModel

from gar.errors import PreflightError
from gar.evaluation.evaluate import Sampling, sample_groups
from gar.evaluation.grading import Group
from gar.evaluation.metrics import mean
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


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of the rollouts: whether it should stop the run, what was found, and why and what to do about it.

    `shown_by` picks the responses that show it. None if single responses do not.
    """

    stops: bool
    what: str
    why: str
    shown_by: Callable[[Response, Verdict], bool] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightReport:
    """The groups, fractions by label, and the findings, those that stop a run first.

    `texts` are the findings in words, each with a response that shows it. A response is shown once.
    """

    groups: tuple[Group, ...]
    shares: Mapping[str, float]
    findings: tuple[Finding, ...]
    texts: tuple[str, ...]

    def raise_if_stop(self) -> None:
        """Raise a `PreflightError` with the text of every finding that stops the run, if there is one."""
        stops = [text for finding, text in zip(self.findings, self.texts, strict=True) if finding.stops]
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
        *_faults_of_answers(groups, shares, needs_alignment),
    ]
    found.sort(key=lambda finding: not finding.stops)
    examples = [_example(groups, finding.shown_by) if finding.shown_by else "" for finding in found]
    texts = [
        f"{finding.what}. {finding.why}" + (f"\n  For example {example}" if example not in ("", *examples[:i]) else "")
        for i, (finding, example) in enumerate(zip(found, examples, strict=True))
    ]
    return PreflightReport(groups=groups, shares=shares, findings=tuple(found), texts=tuple(texts))


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
        Text(f"WARN: {text}", style="bold red" if finding.stops else "yellow")
        for finding, text in zip(report.findings, report.texts, strict=True)
        if with_stops or not finding.stops
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
            cut_off > MOST,
            f"{_percent(cut_off)} of responses reach max_completion_length {limit} without an end",
            f"The limit is shorter than the model's answers, or the model does not end them with {end_token}. Raise "
            "--trl.max_completion_length, or set the tokenizer's eos_token to what the model ends with.",
            lambda response, _: response.truncated,
        )
    empty = mean(not response.text.strip() for group in groups for response in group.responses)
    if empty > MOST:
        yield Finding(
            1 in (empty, bad),
            f"{_percent(empty)} of responses are empty",
            "The model ends where it should begin. An instruction-tuned model needs chat messages: --data.template "
            "boxed makes them. Otherwise compare the prompts' end with what the model was trained on.",
            lambda response, _: not response.text.strip(),
        )
    elif bad > MOST:
        if cut_off > MOST:
            why = "Most responses are cut off before they could complete it. Raise --trl.max_completion_length first."
        elif shares[PREFILLED] > 0 and verifier.format == "think-answer":
            why = (
                f"The prompt ends in {tags.think_open}, so a response must not open it again, has to close it with "
                f"{tags.think_close}, and then answer in {tags.answer_open}. Choose --verify.format boxed or none, or "
                "a chat template that does not open the thinking part."
            )
        else:
            why = (
                f"If the prompt does not ask for this format, ask for it with --data.template {verifier.format}. If it "
                "does, the model does not keep it, or uses other markers: name them in --verify.tags, or let answers "
                "stand anywhere with --verify.format none."
            )
        what = f"{_percent(bad)} of responses are not in the format {verifier.format!r}"
        yield Finding(bad == 1, what, why, lambda _, verdict: not verdict.well_formatted)


_ADVICE = {
    Status.TIMEOUT: "Raise --verify.timeout_seconds, or look for answers that take very long to simplify.",
    Status.ERROR: "The error's text follows the example: is the gold answer unreadable (`gar data check` lists those), "
    "or does a grader of your own fail?",
}


def _faults_of_answers(
    groups: Sequence[Group], shares: Mapping[str, float], needs_alignment: bool
) -> Iterator[Finding]:
    formatted = [verdict for group in groups for verdict in group.verdicts if verdict.well_formatted]
    unparsed = mean(verdict.status is Status.UNPARSED for verdict in formatted) if formatted else 0.0
    if unparsed > SOME:
        yield Finding(
            unparsed == 1,
            f"{_percent(unparsed)} of well-formatted responses hold no answer that can be parsed",
            "The answer part is neither a number nor a formula, or not exactly one value (`3 or 7`). Ask for the final "
            "answer alone there, or give your own grader with --verify.verifier.",
            lambda _, verdict: verdict.well_formatted and verdict.status is Status.UNPARSED,
        )
    for status, advice in _ADVICE.items():
        if fraction := shares[f"verification: {status.value}"]:
            yield Finding(
                fraction > MOST,
                f"verification of {_percent(fraction)} of responses ended in {status.value}",
                f"Such a response earns nothing, whatever its answer. {advice}",
                lambda _, verdict, status=status: verdict.status is status,
            )
    if shares[CORRECT] == 0:
        if (in_bad_format := shares[RIGHT_IN_BAD_FORMAT]) > 0:
            why = f"{_percent(in_bad_format)} have the right answer, but in bad format. Make the format right first."
        elif shares[CUT_OFF] > MOST or shares[BAD_FORMAT] == 1:
            why = "Few of them are complete and readable. See the other findings."
        else:
            why = (
                "The problems are too hard for this model, or its answers have another form than the gold answers. "
                "Compare the answers below with their gold. Take easier problems, or a better model."
            )
        why += " To look at more of them: --preflight.num_problems, --preflight.num_samples."
        yield Finding(True, f"no response of {_num_responses(groups)} is correct", why, lambda *_: True)
    if needs_alignment and shares[NO_ANCHOR] > SOME:
        yield Finding(
            shares[NO_ANCHOR] == 1,
            f"{_percent(shares[NO_ANCHOR])} of problems have no expert solution",
            "Without one a response earns no bonus, and the method is plain GRPO there. Name the column with "
            "--data.anchor_fields, or train with --method grpo.",
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
