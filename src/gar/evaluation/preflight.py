"""Check a few rollouts before the first step. If there is no reward signal, give the reason.

If all responses are cut off, badly formatted or wrong, a run trains for hours and learns nothing.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text
from transformers import PreTrainedModel

from gar.data.traps import is_guessable
from gar.errors import PreflightError
from gar.evaluation.engines import TransformersEngine, sample
from gar.evaluation.grade import judged_groups, num_correct
from gar.evaluation.metrics import mean
from gar.models.generate import Sampling
from gar.response import Response
from gar.settings import PreflightSettings
from gar.types import Problem, ResponseVerifier, Status, answer_format, prompt_text
from gar.verify.formats import FORMATS

MOST = 0.5
"""Above this fraction a failure is the rule: truncation, timeouts and errors then stop the run."""
SOME = 0.1
"""Above this fraction a failure is worth a warning."""
_PART = 2
"""Problems sampled at one time if sampling is slow."""
_BELOW_ALL = math.nextafter(1, 0)
_EXAMPLE_CHARACTERS = 160

CORRECT, CUT_OFF, EMPTY = "correct: verified and well formatted", "cut off without an end token", "empty"
BAD_FORMAT, RIGHT_IN_BAD_FORMAT = "badly formatted", "right answer in bad format"
UNREADABLE, UNCHECKED = "well formatted without a readable answer", "not graded: timeout or error"
ALL_CORRECT, ALL_WRONG = "groups all correct", "groups all wrong"
GUESSABLE = "gold answers that can be guessed"

_OF_RESPONSES: Mapping[str, Callable[[Response], bool]] = {
    CORRECT: lambda response: response.is_correct,
    CUT_OFF: lambda response: response.truncated,
    EMPTY: lambda response: response.empty,
    BAD_FORMAT: lambda response: not response.verdict.well_formatted,
    RIGHT_IN_BAD_FORMAT: lambda response: response.verdict.verified and not response.verdict.well_formatted,
    UNREADABLE: lambda response: response.verdict.well_formatted and response.verdict.status is Status.UNPARSED,
    UNCHECKED: lambda response: response.verdict.status in (Status.TIMEOUT, Status.ERROR),
}
"""Shares of the responses, by label."""

_FAULTS: Mapping[str, tuple[float, str]] = {
    CUT_OFF: (
        SOME,
        "of responses reach max_completion_length {limit} without an end. The limit is shorter than the model's "
        "answers, or the model does not end them with {end_token}. Raise --trl.max_completion_length, or set the "
        "tokenizer's eos_token to what the model ends with.",
    ),
    EMPTY: (
        SOME,
        "of responses are empty: the model ends at once.{as_chat} A base model may need a prompt that ends in a line "
        "break.",
    ),
    BAD_FORMAT: (
        MOST,
        "of responses are not in the format {format!r}. If they are cut off, raise --trl.max_completion_length first."
        "{as_chat}{ask}{advice} To accept answers anywhere: --verify.format none.",
    ),
    UNREADABLE: (
        SOME,
        "of responses keep the format and hold no answer that can be parsed. The answer part is neither a number nor a "
        "formula, or not exactly one value (`3 or 7`). Ask for the final answer alone there, or give your own grader "
        "with --verify.verifier.",
    ),
    UNCHECKED: (
        0,
        "of responses could not be graded, and earn nothing. After timeouts raise --verify.timeout_seconds. An error's "
        "text follows the example: is the gold answer unreadable (`gar data check` lists those), or does a "
        "custom grader fail?",
    ),
    ALL_WRONG: (
        _BELOW_ALL,
        "of groups hold no correct response. The problems are too hard for this model, or its answers are cut off, "
        "badly formatted, or of another form than the gold answers. Compare the answers below with their gold, take "
        "easier problems or a better model, or look at more: --preflight.num_problems, --preflight.num_samples.",
    ),
    GUESSABLE: (
        SOME,
        "of the gold answers are a letter, yes or no. A lucky response is paid like a right one. `gar data check` "
        "lists these problems. Ask for the value instead, or leave them out.",
    ),
}
"""The share above which each fault is reported, and what it means. The text follows the share in percent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightReport:
    """The responses of a preflight, their fractions by label, and its findings as text."""

    problems: Sequence[Problem]
    groups: Sequence[Sequence[Response]]
    shares: Mapping[str, float]
    findings: tuple[str, ...]
    stops: bool
    interrupt: KeyboardInterrupt | None = None
    """What ended the sampling early."""

    def raise_if_stop(self) -> None:
        """Raise a `PreflightError` with all findings, if one of them stops the run."""
        if self.stops:
            raise PreflightError(
                f"{len(self.groups[0])} responses to each of {len(self.groups)} problems, before the first "
                "step, show that training would waste its budget:\n"
                + "\n".join(f"- {finding}" for finding in self.findings)
                + "\nTo train anyway: --preflight.mode warn."
            )


def preflight(
    model: PreTrainedModel,
    tokenizer: Any,
    problems: Sequence[Problem],
    verifier: ResponseVerifier,
    settings: PreflightSettings,
    sampling: Sampling,
    on_part: Callable[[int], None] | None = None,
) -> PreflightReport:
    """Sample a few groups as training will, and find their faults. The caller acts on `settings.mode`.

    `settings.num_problems` are drawn with `sampling.seed`, and sampled as training samples them. With `on_part` two
    problems at a time: it is told how many are done, and a Ctrl-C after the first part leaves a report of what there
    is, with its `interrupt`.

    Raises:
        DataError: There are no problems, or a prompt does not fit into the context.
        ModelError: As `generate_responses`.
    """
    # 1. Draw problems from the whole data set: the first ones may be the easiest.
    drawn = random.Random(sampling.seed).sample(range(len(problems)), min(settings.num_problems, len(problems)))
    few = [problems[i] for i in sorted(drawn)]
    # 2. Sample and judge. Ctrl-C keeps the parts that are done, since on a CPU this may take minutes.
    groups, interrupt = list[Sequence[Response]](), None
    engine = TransformersEngine(model, tokenizer, verifier.tags)
    try:
        while not groups or len(groups) < len(few):  # of no problems sampling makes an error
            part = few[len(groups) :][: _PART if on_part else None]
            how = replace(sampling, seed=sampling.seed + len(groups), num_samples=settings.num_samples)
            groups += judged_groups(verifier, part, sample(engine, part, how, progress="preflight"))
            if on_part:
                on_part(len(groups))
    except KeyboardInterrupt as stop:
        if not groups:
            raise
        few, interrupt = few[: len(groups)], stop
    # 3. Find what is wrong. If most responses are cut off or not graded, or none is right, nothing would be learned.
    shares = _shares(groups) | {GUESSABLE: mean(is_guessable(problem.answer) for problem in few)}
    facts = {
        "limit": (sampling.generation_kwargs or {}).get("max_new_tokens", sampling.max_new_tokens),
        "end_token": repr(tokenizer.eos_token),
        "format": verifier.format,
        **_advice(few, tokenizer, verifier),
    }
    stops = max(shares[CUT_OFF], shares[UNCHECKED]) > MOST or shares[CORRECT] == 0
    found = tuple(_findings(few, groups, shares, facts))
    return PreflightReport(problems=few, groups=groups, shares=shares, findings=found, stops=stops, interrupt=interrupt)


def _findings(
    problems: Sequence[Problem],
    groups: Sequence[Sequence[Response]],
    shares: Mapping[str, float],
    facts: Mapping[str, object],
) -> Iterator[str]:
    """What is wrong, with an example that no finding before has."""
    shown = set[str]()
    for label, (above, meaning) in _FAULTS.items():
        if shares[label] > above:
            text = f"{_percent(shares[label])} {meaning.format(**facts)}"
            example = None if label == GUESSABLE else _example(problems, groups, label)
            if example and example not in shown:
                text += f"\n  For example {example}"
                shown.add(example)
            yield text


def _advice(problems: Sequence[Problem], tokenizer: Any, verifier: ResponseVerifier) -> dict[str, str]:
    """Sentences on prompts and format. What is in force already is left out."""
    prompt, format, tags = problems[0].prompt, verifier.format, verifier.tags
    wanted = answer_format(format)
    asks = FORMATS[wanted].instruction(tags) in prompt_text(prompt)
    advice = FORMATS[format].advice(tags)
    sentences = {
        "as_chat": (
            isinstance(prompt, str) and bool(tokenizer.chat_template),
            "An instruction-tuned model needs chat messages: --data.template chat, which adds no instruction, or "
            f"--data.template {wanted}.",
        ),
        "ask": (not asks, f"If the prompt does not ask for this format, ask for it with --data.template {wanted}."),
        "advice": (bool(advice), advice),
    }
    return {name: f" {sentence}" if holds else "" for name, (holds, sentence) in sentences.items()}


def render(report: PreflightReport, *, with_findings: bool = True) -> Lines:
    """The report for a terminal: a table of fractions, then the findings, unless `raise_if_stop` is to raise them."""
    table = Table(title=f"Preflight: {len(report.groups)} problems, {len(report.groups[0])} responses each")
    table.add_column("what")
    table.add_column("share", justify="right")
    for label, fraction in report.shares.items():
        if label == GUESSABLE and not fraction:
            continue  # the usual case
        table.add_row(label, _percent(fraction))
    if not report.findings:
        return Lines(table, Text("No faults.", style="green"))
    style = "bold red" if report.stops else "yellow"
    return Lines(table, *(Text(f"WARN: {finding}", style=style) for finding in report.findings if with_findings))


def _shares(groups: Sequence[Sequence[Response]]) -> dict[str, float]:
    responses = list(chain.from_iterable(groups))
    return {
        **{label: mean(map(holds, responses)) for label, holds in _OF_RESPONSES.items()},
        ALL_CORRECT: mean(num_correct(group) == len(group) for group in groups),
        ALL_WRONG: mean(num_correct(group) == 0 for group in groups),
    }


def _example(problems: Sequence[Problem], groups: Sequence[Sequence[Response]], label: str) -> str | None:
    """The first response with a fault, shortened: problem, gold, text, and the verifier's explanation."""
    for problem, group in zip(problems, groups, strict=True):
        for response in group:
            if label == ALL_WRONG or _OF_RESPONSES[label](response):
                shown = repr(response.text[:_EXAMPLE_CHARACTERS]) + "..." * (len(response.text) > _EXAMPLE_CHARACTERS)
                detail = f" ({response.verdict.detail})" if response.verdict.detail else ""
                return f"problem {problem.id!r}, gold {problem.answer!r}: {shown}{detail}"
    return None


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g}%"
