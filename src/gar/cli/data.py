"""`gar data`: `check` and `prepare` problems, `guide` those that are too hard, convert them for `slime` and `verl`."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field

from gar.cli.arguments import run_stage
from gar.cli.console import show, show_table
from gar.cli.outcomes import DEGENERATE, DONE, REFUSED
from gar.data.check import DataReport, Usability, check_problems
from gar.data.guide import WORDING, guide_problems
from gar.data.prepare import draw_subset, problem_row, slime_row, write_json_lines, write_problems
from gar.data.problems import LoadedProblems, iter_problems, load_problems, prompt_text
from gar.data.prompts import PromptTemplate, render_problems
from gar.data.rows import check_source, check_suffix
from gar.errors import ConfigError
from gar.settings import ModelSettings, SourceSettings, TagSettings, VerifySettings
from gar.types import Problem, Status

_NUM_EXAMPLES = 5
_STATUSES: dict[Usability, int] = {"usable": DONE, "usable for GRPO only": DEGENERATE, "not usable": REFUSED}

_COMPARED = {
    Status.OK: "expert answers that agree with the gold answer",
    Status.WRONG: "expert answers that disagree with the gold answer",
    Status.UNPARSED: "expert solutions without a readable answer",
    Status.TIMEOUT: "comparisons that took too long",
    Status.ERROR: "comparisons that failed, or gold answers that cannot be read",
}


class _Source(SourceSettings):
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A .jsonl, .parquet, .csv or .json file, a folder of such files, or a Hub id (owner/name)."""


class _CheckArguments(_Source):
    compare: bool = True
    """Compare the final answer of every expert solution with the gold answer."""
    benchmark: str | None = None
    """Also count the problems of this benchmark that the source holds: a name or file, as in gar eval."""


class _Files(_Source):
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The file to write."""
    overwrite: bool = False
    """Replace an existing file."""

    def check(self, suffix: str) -> None:
        """Reject an output that exists, or has the wrong suffix."""
        check_suffix(self.out, suffix)
        if self.out.exists() and Path(self.source).exists() and self.out.samefile(self.source):
            raise ConfigError(f"{self.out} is the source itself. Write to a different file.")
        if self.out.exists() and not self.overwrite:
            raise ConfigError(f"{self.out} exists. Add --overwrite to replace it.")

    def load(self) -> LoadedProblems:
        """All problems of the source."""
        return load_problems(self.source, options=self)


class _PrepareArguments(_Files):
    num_problems: Annotated[int, Field(ge=1)]
    """Size of the subset."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Seed of the draw."""
    require_anchor: bool = True
    """Leave out problems without an expert solution."""


class _VerlArguments(_Files):
    template: PromptTemplate = "think-answer"
    """Which response format the prompts ask for."""
    tags: tyro.conf.OmitArgPrefixes[TagSettings] = TagSettings()


class _SlimeArguments(_VerlArguments):
    chat: bool = True
    """Prompts as chat messages, for slime's --apply-chat-template. Otherwise text."""


class _GuideArguments(_VerlArguments):
    model: str
    """Folder or Hub id of the policy, or embedded."""
    samples: Annotated[int, Field(ge=2)] = 8
    """Responses to each problem."""
    seed: int = 0
    """Seed of the responses."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 1024
    """Longest response."""
    wording: str = WORDING
    """The new prompt, with {prompt} and {beginning}."""


# Blank lines and indentation as tyro lays them out.
_CHECK = """Report what a source holds, what would be dropped, and what looks wrong.

Verdict and exit status: usable (0), usable for GRPO only (3), not usable (1).
"""
_PREPARE = """Write a random subset of the usable problems, as .jsonl.

It depends on the prompts and the seed alone. Subsets of one seed are nested.

Repeated prompts are taken once.
"""
_GUIDE = """Help with problems that a model never solves:
  gar data guide SOURCE OUT.jsonl --model MODEL

Samples responses to every problem. If none is correct, the prompt gets the
  beginning of the expert solution: the shortest of 1/4, 1/2 and 3/4 with which
  some responses are correct. The rest is the new expert solution.

The column guided_share of OUT holds the share of the solution in the prompt.

The prompts of OUT are without the template.
"""


def main(arguments: list[str]) -> int:
    """Run `gar data ...`. The verdict of `check` sets its exit status."""
    stages = {
        "check": (_check, _CheckArguments, "report what a source holds and what is wrong", _CHECK),
        "prepare": (_prepare, _PrepareArguments, "write a random subset", _PREPARE),
        "guide": (_guide, _GuideArguments, "begin the solution of problems that a model never solves", _GUIDE),
        "slime": (_slime, _SlimeArguments, "write problems for slime", "Write .jsonl for slime's --prompt-data."),
        "verl": (_verl, _VerlArguments, "write problems for verl", "Write .parquet for verl's data files."),
    }
    return run_stage("data", stages, arguments, "")


def _check(options: _CheckArguments) -> int:
    check_source(options.source)
    report = check_problems(options.source, options=options, compare=options.compare)
    _print_report(report)
    if options.benchmark is not None:
        _print_contamination(options, options.benchmark)
    return _STATUSES[report.verdict()[0]]


def _print_contamination(options: _CheckArguments, benchmark: str) -> None:
    """Print how many problems of a benchmark are in a source, and those with the largest overlap."""
    from gar.evaluation.benchmarks.load import load_benchmark
    from gar.evaluation.contamination import find_overlaps

    problems = {problem.id: prompt_text(problem.prompt) for problem in load_benchmark(benchmark).problems}
    rows = ((place, prompt_text(problem.prompt)) for place, problem in iter_problems(options.source, options))
    overlaps = find_overlaps(rows, problems)
    counts = {
        "problems": len(problems),
        "whole in one row": sum(fraction == 1 for fraction, _ in overlaps.values()),
        "whole, or 13 words in a row": len(overlaps),
    }
    _show_counts(f"{benchmark} in {options.source}", counts)
    for name in sorted(overlaps, key=lambda name: -overlaps[name][0])[:_NUM_EXAMPLES]:
        fraction, place = overlaps[name]
        show(f"  {name}: {fraction:.0%} in {place}")


def _prepare(options: _PrepareArguments) -> int:
    options.check(".jsonl")
    subset = draw_subset(
        options.source,
        num_problems=options.num_problems,
        seed=options.seed,
        options=options,
        require_anchor=options.require_anchor,
    )
    write_problems(subset.problems, options.out)
    counts = {
        "rows read": subset.num_usable + sum(subset.dropped.values()),
        **{f"rows dropped: {reason}": count for reason, count in subset.dropped.items()},
        "usable problems": subset.num_usable,
        "problems written": len(subset.problems),
    }
    _show_counts(str(options.out), counts)
    if len(subset.problems) < options.num_problems:
        show(f"Fewer than the {options.num_problems:,} requested: the source has no more.", style="bold")
    show(f"sha256 {hashlib.sha256(options.out.read_bytes()).hexdigest()}")
    return DONE


def _slime(options: _SlimeArguments) -> int:
    options.check(".jsonl")
    loaded, tags = options.load(), options.tags.as_tags()
    rows = (slime_row(problem, options.template, chat=options.chat, tags=tags) for problem in loaded)
    write_json_lines(rows, options.out)
    return _written(options, loaded)


def _verl(options: _VerlArguments) -> int:
    from gar.integrations.verl.data import write_verl_problems

    options.check(".parquet")
    loaded = options.load()
    write_verl_problems(loaded.problems, options.out, template=options.template, tags=options.tags.as_tags())
    return _written(options, loaded)


def _written(options: _Files, loaded: LoadedProblems) -> int:
    for note in loaded.notes:
        show(note)
    lacking = sum(not problem.anchors for problem in loaded)
    _show_counts(str(options.out), {"problems written": len(loaded), "without an expert solution": lacking})
    return DONE


def _guide(options: _GuideArguments) -> int:
    options.check(".jsonl")
    if "{prompt}" not in options.wording or "{beginning}" not in options.wording:
        raise ConfigError("--wording needs {prompt} and {beginning}.")
    from gar.evaluation.evaluate import Sampling, sample_groups
    from gar.models.load import load_policy
    from gar.verify import Verifier

    policy, tokenizer = load_policy(ModelSettings(path=options.model))
    settings = VerifySettings(tags=options.tags, format="boxed" if options.template == "boxed" else "think-answer")
    sampling = Sampling(
        max_new_tokens=options.max_new_tokens, temperature=1.0, top_p=1.0, seed=options.seed, batch_size=256
    )
    tags = options.tags.as_tags()
    with Verifier.from_settings(settings) as verifier:

        def count_right(problems: Sequence[Problem]) -> list[int]:
            shown = render_problems(problems, options.template, tokenizer, tags)
            groups = sample_groups(
                policy, tokenizer, shown, verifier, sampling, num_samples=options.samples, progress="guide"
            )
            return [group.num_correct for group in groups]

        guided = guide_problems(
            options.load().problems, count_right, num_samples=options.samples, wording=options.wording, tags=tags
        )
    rows = (problem_row(each) | {"guided_share": guided.shares.get(each.id, 0.0)} for each in guided.problems)
    write_json_lines(rows, options.out)
    used = ", ".join(f"{count} with {share:.0%}" for share, count in sorted(Counter(guided.shares.values()).items()))
    show(
        f"{options.out}: {len(guided.problems):,} problems, {guided.num_hard:,} without a correct response, of which "
        f"{len(guided.shares):,} are guided{f' ({used} of the solution)' if used else ''}.",
    )
    return DONE


def _print_report(report: DataReport) -> None:
    compared = {label: report.comparisons.get(status) for status, label in _COMPARED.items()}
    findings = {
        "problems without an anchor (legal, they earn no bonus)": report.without_anchor,
        **{f"rows dropped: {reason}": finding for reason, finding in report.dropped.items()},
        "repeated prompts": report.repeated_prompts,
        **{label: finding for label, finding in compared.items() if finding},
        "errors": report.errors,
    }
    counts = {"problems": report.num_problems, "anchors": report.num_anchors}
    counts |= {label: len(finding) for label, finding in findings.items()}
    _show_counts(report.source + (f", read as {report.column_schema}" if report.column_schema else ""), counts)
    for label, finding in findings.items():
        if finding and label != _COMPARED[Status.OK]:
            show(f"\n{label}, for example:")
            for example in finding[:_NUM_EXAMPLES]:
                show(f"  {example}")
    usability, reason = report.verdict()
    style = "bold green" if usability == "usable" else "bold red"
    show(f"\n{usability[0].upper()}{usability[1:]}: {reason}", style=style)


def _show_counts(title: str, counts: Mapping[str, int]) -> None:
    show_table(title, [(label, f"{count:,}") for label, count in counts.items()])
