"""A check of a few rollouts before the first step: is there anything to learn from, and if not, why?

A run whose responses are all cut off, badly formatted or wrong trains for hours without an error and without a result.
The faults are in `findings.py`.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text
from transformers import PreTrainedModel

from gar.errors import PreflightError
from gar.evaluation.evaluate import Sampling, sample_groups
from gar.evaluation.findings import Finding, RolloutFacts, find_faults, percent
from gar.settings import PreflightSettings
from gar.types import Problem, ResponseVerifier

_ROWS = (
    ("correct_fraction", "correct: verified and well formatted"),
    ("truncated_fraction", "cut off without an end token"),
    ("badly_formatted_fraction", "badly formatted"),
    ("verified_badly_formatted_fraction", "right answer in bad format"),
    ("all_correct_fraction", "groups all correct"),
    ("all_wrong_fraction", "groups all wrong"),
    ("prefilled_fraction", "prompts that already open the thinking part"),
    ("missing_anchor_fraction", "problems without an expert solution"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightReport:
    """Statistics of a few rollouts, and their faults, the worst first."""

    facts: RolloutFacts
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The findings, without examples that an earlier one has."""
        examples = [finding.example for finding in self.findings]
        return tuple(
            replace(finding, example="") if finding.example in examples[:i] else finding
            for i, finding in enumerate(self.findings)
        )

    def raise_if_stop(self) -> None:
        """Raise an error if a finding says stop.

        Raises:
            PreflightError: With the text of every such finding.
        """
        stops = [str(finding) for finding in self.shown if finding.severity == "stop"]
        if stops:
            groups = self.facts.groups
            raise PreflightError(
                f"{sum(group.num_samples for group in groups)} responses to {len(groups)} problems, before the first "
                "step, show that training would waste its budget:\n"
                + "\n".join(f"- {stop}" for stop in stops)
                + "\nTo train anyway: --preflight.mode warn."
            )

    def to_json(self) -> dict[str, Any]:
        """The fractions and the findings, without the groups."""
        return {
            "num_problems": len(self.facts.groups),
            "num_samples": self.facts.groups[0].num_samples,
            **{name: getattr(self.facts, name) for name, _ in _ROWS},
            "status_fractions": {status.value: value for status, value in self.facts.status_fractions.items()},
            "findings": [asdict(finding) for finding in self.findings],
            "seconds": self.seconds,
        }


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

    Args:
        model: The policy; its mode and the random state of the process are left as they are.
        tokenizer: Its tokenizer.
        problems: All training problems; `settings.num_problems` of them are drawn with `sampling.seed`.
        verifier: Gives each response its verdict.
        settings: How many problems and samples.
        sampling: How training samples; `max_new_tokens` is TRL's max_completion_length.
        needs_alignment: The method compares responses with expert solutions (`gar.methods.Method.needs_alignment`).

    Raises:
        DataError: There are no problems, or a prompt does not fit into the context.
        ModelError: As `generate_responses`.
    """
    start = time.perf_counter()
    drawn = random.Random(sampling.seed).sample(range(len(problems)), min(settings.num_problems, len(problems)))
    few = [problems[i] for i in sorted(drawn)]
    groups = sample_groups(
        model, tokenizer, few, verifier, sampling, num_samples=settings.num_samples, progress="preflight"
    )
    facts = RolloutFacts.from_groups(groups, problems)
    findings = find_faults(
        facts,
        verifier,
        needs_alignment=needs_alignment,
        max_new_tokens=(sampling.generation_kwargs or {}).get("max_new_tokens", sampling.max_new_tokens),
        end_token=tokenizer.eos_token,
    )
    return PreflightReport(facts=facts, findings=findings, seconds=time.perf_counter() - start)


def render(report: PreflightReport, *, with_stops: bool = True) -> Lines:
    """The report for a terminal: a table of fractions, then the findings.

    Args:
        report: The report.
        with_stops: Include the findings that would stop the run, as warnings: the error of `raise_if_stop` has them.
    """
    table = Table(
        title=f"Preflight: {len(report.facts.groups)} problems, {report.facts.groups[0].num_samples} responses each"
    )
    table.add_column("what")
    table.add_column("share", justify="right")
    rows = [(label, getattr(report.facts, name)) for name, label in _ROWS]
    rows += [(f"verification: {status.value}", fraction) for status, fraction in report.facts.status_fractions.items()]
    for label, fraction in rows:
        table.add_row(label, percent(fraction))
    lines = [
        Text(f"WARN: {finding}", style="bold red" if finding.severity == "stop" else "yellow")
        for finding in report.shown
        if with_stops or finding.severity != "stop"
    ]
    return Lines(table, *lines, *([] if report.findings else [Text("No faults.", style="green")]))
