"""`gar data`: `check` and `prepare` problems, and convert them for `slime` and `verl`."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field

from gar.cli.arguments import run_stage
from gar.cli.console import show, show_table
from gar.cli.outcomes import DEGENERATE, DONE, REFUSED
from gar.data.check import DataReport, Usability, check_problems
from gar.data.prepare import draw_subset, write_json_lines, write_problems
from gar.data.rows import check_source, check_suffix
from gar.errors import ConfigError
from gar.settings import SourceSettings
from gar.types import Problem, PromptTemplate, Status, Tags

_NUM_EXAMPLES = 5
_STATUSES: dict[Usability, int] = {"usable": DONE, "usable for GRPO only": DEGENERATE, "not usable": REFUSED}


class _Source(SourceSettings):
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A .jsonl, .parquet, .csv or .json file, a folder of such files, or a Hub id (owner/name)."""


def _do_without_torch() -> None:
    """Keep `datasets` from importing torch, which takes longer to import than `datasets` itself."""
    os.environ.setdefault("USE_TORCH", "0")


class _Check(_Source):
    """Count problems, and list dropped rows and likely mistakes.

    Verdict and exit status: usable (0), usable for GRPO only (3), not usable (1).
    """

    compare: Annotated[
        bool,
        tyro.conf.arg(
            help="Do not compare the expert solutions' answers with the gold answers.", help_behavior_hint=""
        ),
    ] = True

    def run(self) -> int:
        check_source(self.source)
        _do_without_torch()
        report = check_problems(self.source, options=self, compare=self.compare)
        _print_report(report)
        return _STATUSES[report.verdict()[0]]


class _Files(_Source):
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The file to write."""
    overwrite: bool = False
    """Replace an existing file."""

    def check(self, suffix: str) -> None:
        """Reject a missing source, and an output that exists, is the source itself, or has the wrong suffix."""
        check_source(self.source)
        check_suffix(self.out, suffix)
        if self.out.exists() and Path(self.source).exists() and self.out.samefile(self.source):
            raise ConfigError(f"{self.out} is the source itself. Write to a different file.")
        if self.out.exists() and not self.overwrite:
            raise ConfigError(f"{self.out} exists. Add --overwrite to replace it.")


class _Prepare(_Files):
    """Write a random subset of the usable problems, as .jsonl.

    The subset depends only on the prompts and the seed.

    With the same seed, a smaller subset is part of a larger one.

    Each prompt is drawn at most once.
    """

    num_problems: Annotated[int, Field(ge=1)]
    """Size of the subset."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Seed of the draw."""
    require_anchor: Annotated[
        bool, tyro.conf.arg(help="Also draw problems without an expert solution.", help_behavior_hint="")
    ] = True

    def run(self) -> int:
        self.check(".jsonl")
        _do_without_torch()
        drawn = self.model_dump(include={"num_problems", "seed", "require_anchor"})
        subset = draw_subset(self.source, options=self, **drawn)
        write_problems(subset.problems, self.out)
        counts = {
            "rows read": subset.num_usable + sum(subset.dropped.values()),
            **{f"rows dropped: {reason}": count for reason, count in subset.dropped.items()},
            "usable problems": subset.num_usable,
            "problems written": len(subset.problems),
        }
        _show_counts(str(self.out), counts)
        if len(subset.problems) < self.num_problems:
            show(f"Fewer than the {self.num_problems:,} requested: the source has no more.", style="bold")
        show(f"sha256 {hashlib.sha256(self.out.read_bytes()).hexdigest()}")
        return DONE


class _Prompts(_Files):
    template: PromptTemplate = "think-answer"
    """Response format that the prompts ask for."""
    tags: tyro.conf.OmitArgPrefixes[Tags] = Tags()
    shuffle_anchors: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    """For the control anchor-shuffled: give each problem the expert solutions of another one, drawn with this seed."""

    def load(self) -> Sequence[Problem]:
        """All problems. Prints how many there are."""
        _do_without_torch()
        from gar.data.problem_set import load_problems  # it imports `datasets`, which the other stages do not need

        loaded = load_problems(self.source, options=self)
        for note in loaded.notes:
            show(note)
        lacking = len(loaded) - int(loaded.anchored.sum())
        _show_counts(self.source, {"problems": len(loaded), "without an expert solution": lacking})
        return loaded


class _Slime(_Prompts):
    """Write problems for slime: .jsonl for its --prompt-data."""

    chat: Annotated[
        bool,
        tyro.conf.arg(
            help="Write prompts as text, not as chat messages for slime's --apply-chat-template.", help_behavior_hint=""
        ),
    ] = True

    def run(self) -> int:
        self.check(".jsonl")
        from gar.integrations.data import slime_rows

        options = {"chat": self.chat, "tags": self.tags, "shuffle_seed": self.shuffle_anchors}
        write_json_lines(slime_rows(self.load(), self.template, **options), self.out)
        return DONE


class _Verl(_Prompts):
    """Write problems for verl: .parquet for its data files."""

    def run(self) -> int:
        self.check(".parquet")
        from gar.integrations.data import write_verl_problems

        options = {"template": self.template, "tags": self.tags, "shuffle_seed": self.shuffle_anchors}
        write_verl_problems(self.load(), self.out, **options)
        return DONE


def main(arguments: list[str]) -> int:
    """Run `gar data ...`. The verdict of `check` sets its exit status."""
    stages = {"check": _Check, "prepare": _Prepare, "slime": _Slime, "verl": _Verl}
    return run_stage("gar data", stages, arguments, about="Check and prepare problems.")


def _print_report(report: DataReport) -> None:
    findings: dict[str, Sequence[object]] = {
        "problems without an expert solution (allowed, no bonus)": report.without_anchor,
        **{f"rows dropped: {reason}": finding for reason, finding in report.dropped.items()},
        "repeated prompts": report.repeated_prompts,
        **({"gold answers that cannot be parsed": report.unreadable} if report.unreadable else {}),
        **({"gold answers that can be guessed: a letter, yes or no": report.guessable} if report.guessable else {}),
        **({"gold answers from the last of several boxes": report.several_boxes} if report.several_boxes else {}),
        **report.traps,
        **({"expert answers: ok": range(report.num_agreeing)} if report.num_agreeing else {}),
        **{f"expert answers: {each}": report.comparisons[each] for each in Status if each in report.comparisons},
        "errors": report.errors,
    }
    counts = {"problems": report.num_problems, "expert solutions": report.num_anchors}
    counts |= {label: len(finding) for label, finding in findings.items()}
    _show_counts(report.source + (f", schema {report.column_schema}" if report.column_schema else ""), counts)
    for label, finding in findings.items():
        if finding and not isinstance(finding, range):  # a range is only counted
            show(f"\n{label}, for example:")
            for example in finding[:_NUM_EXAMPLES]:
                show(f"  {example}")
    if report.common_answer:
        answer, share = report.common_answer
        show(f"\n{share:.0%} of the gold answers are {answer!r}, so that a guess is often right.")
    usability, reason = report.verdict()
    style = "bold green" if usability == "usable" else "bold red"
    show(f"\n{usability[0].upper()}{usability[1:]}: {reason}", style=style)


def _show_counts(title: str, counts: Mapping[str, int]) -> None:
    show_table(title, [(label, f"{count:,}") for label, count in counts.items()])
