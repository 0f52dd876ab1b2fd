"""`gar data`: `check` and `prepare` problems, `guide` those that are too hard, convert them for `slime` and `verl`."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field
from rich.markup import escape
from rich.table import Table

from gar.cli.arguments import Files, run_stage
from gar.cli.console import show
from gar.cli.guide import GuideArguments, guide
from gar.cli.outcomes import DEGENERATE, DONE, REFUSED
from gar.data.check import NUM_EXAMPLES, DataReport, Usability, check_problems
from gar.data.prepare import Subset, draw_subset, slime_row, write_json_lines, write_problems
from gar.data.problems import iter_problems, load_problems, prompt_text
from gar.data.prompts import PromptTemplate
from gar.data.rows import check_source
from gar.settings import SourceSettings, TagSettings
from gar.types import Problem, Status, Tags

_STATUSES: dict[Usability, int] = {"usable": DONE, "usable for GRPO only": DEGENERATE, "not usable": REFUSED}

_WORKERS = 2  # processes that compare answers
_QUANTILES = {"min": "min", "median": "median", "p90": "90%", "p99": "99%", "max": "max"}
_COMPARED = {
    Status.OK: "expert answers that agree with the gold answer",
    Status.WRONG: "expert answers that disagree with the gold answer",
    Status.UNPARSED: "expert solutions without a readable answer",
    Status.TIMEOUT: "comparisons that took too long",
    Status.ERROR: "comparisons that failed, or gold answers that cannot be read",
}


class _CheckArguments(SourceSettings):
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A .jsonl, .parquet, .csv or .json file, a folder of such files, or a Hub id (owner/name)."""
    tokenizer: str | None = None
    """Measure prompts and anchors with the tokenizer of this folder, Hub id or "embedded"."""
    compare: bool = True
    """Compare the final answer of every expert solution with the gold answer."""
    benchmark: str | None = None
    """Also count the problems of this benchmark that the source holds: a name or file, as in gar eval."""


class _PrepareArguments(Files):
    num_problems: Annotated[int, Field(ge=1)]
    """Size of the subset."""
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Seed of the draw."""
    require_anchor: bool = True
    """Leave out problems without an expert solution."""


class _VerlArguments(Files):
    template: PromptTemplate = "think-answer"
    """Which response format the prompts ask for."""
    tags: tyro.conf.OmitArgPrefixes[TagSettings] = TagSettings()


class _SlimeArguments(_VerlArguments):
    chat: bool = True
    """Prompts as chat messages, for slime's --apply-chat-template. Otherwise text."""


# Blank lines and indentation as tyro lays them out.
_CHECK = """Report what a source holds, what would be dropped, and what looks wrong.

Verdict and exit status: usable (0), usable for GRPO only (3), not usable (1).
"""
_PREPARE = """Write a random subset of the usable problems, as .jsonl or .parquet.

It depends on the prompts and the seed alone. Subsets of one seed are nested.

Repeated prompts are taken once.
"""
_GUIDE = """Help with problems that a model never solves:
  gar data guide SOURCE OUT.jsonl --model MODEL

Samples responses to every problem. If none is correct, the prompt gets the
  beginning of the expert solution: the shortest of 1/4, 1/2 and 3/4 with which
  some responses are correct. The rest is the new expert solution.

The column guided_share of OUT holds the share of the solution in the prompt.
"""


def main(arguments: list[str]) -> int:
    """Run `gar data ...`. The exit status of `check` is that of its verdict."""
    stages = {
        "check": (_check, _CheckArguments, "report what a source holds and what is wrong", _CHECK),
        "prepare": (_prepare, _PrepareArguments, "write a random subset", _PREPARE),
        "guide": (guide, GuideArguments, "begin the solution of problems that a model never solves", _GUIDE),
        "slime": (_slime, _SlimeArguments, "write problems for slime", "Write .jsonl for slime's --prompt-data."),
        "verl": (_verl, _VerlArguments, "write problems for verl", "Write .parquet for verl's data files."),
    }
    return run_stage("data", stages, arguments, "")


def _check(options: _CheckArguments) -> int:
    check_source(options.source)
    tokenizer = None
    if options.tokenizer is not None:
        from gar.models.load import load_tokenizer

        tokenizer = load_tokenizer(options.tokenizer)
    workers = _WORKERS if options.compare else 0
    report = check_problems(options.source, options=options, tokenizer=tokenizer, compare_workers=workers)
    _print_report(report)
    if options.benchmark is not None:
        _print_contamination(options.source, options, options.benchmark)
    return _STATUSES[report.verdict()[0]]


def _print_contamination(source: str, reading: SourceSettings, benchmark: str) -> None:
    """Print how many problems of a benchmark are in a source, and those with the largest overlap."""
    from gar.evaluation.benchmarks.load import load_benchmark
    from gar.evaluation.contamination import find_overlaps

    problems = {problem.id: prompt_text(problem.prompt) for problem in load_benchmark(benchmark).problems}
    rows = (
        (place, prompt_text(item.prompt)) for place, item in iter_problems(source, reading) if isinstance(item, Problem)
    )
    overlaps = find_overlaps(rows, problems)
    counts = {
        "problems": len(problems),
        "with an exact copy": sum(overlap.num_exact > 0 for overlap in overlaps.values()),
        "whole in one row": sum(overlap.shared_fraction == 1 for overlap in overlaps.values()),
        "sharing 13 words with a row": sum(overlap.num_sharing > 0 for overlap in overlaps.values()),
    }
    show(_counts_table(f"{benchmark} in {source}", counts))
    worst = sorted(overlaps, key=lambda name: -overlaps[name].shared_fraction)[:NUM_EXAMPLES]
    for name in worst:
        if overlaps[name].place:
            place, share = overlaps[name].place, overlaps[name].shared_fraction
            show(f"  {name}: {share:.0%} in {place}")


def _prepare(options: _PrepareArguments) -> int:
    options.check()
    subset = draw_subset(
        options.source,
        num_problems=options.num_problems,
        seed=options.seed,
        options=options,
        require_anchor=options.require_anchor,
    )
    write_problems(subset.problems, options.out)
    _print_subset(subset, options.out, options.num_problems)
    return DONE


def _slime(options: _SlimeArguments) -> int:
    def write(problems: Sequence[Problem], path: Path, template: PromptTemplate, tags: Tags) -> None:
        write_json_lines((slime_row(each, template, chat=options.chat, tags=tags) for each in problems), path)

    return _rewrite(options, ".jsonl", write)


def _verl(options: _VerlArguments) -> int:
    from gar.integrations.verl.data import write_verl_problems

    return _rewrite(options, ".parquet", write_verl_problems)


def _rewrite(options: _VerlArguments, suffix: str, write: Callable[..., object]) -> int:
    """Write all problems of a source with the columns of an engine, and print their number."""
    options.check(suffix)
    loaded = load_problems(options.source, options=options)
    write(loaded.problems, options.out, template=options.template, tags=options.tags.as_tags())
    for note in loaded.notes:
        show(note)
    num_without = sum(not problem.anchors for problem in loaded)
    counts = {"problems written": len(loaded.problems), "without an expert solution": num_without}
    show(_counts_table(str(options.out), counts))
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
    counts |= {label: finding.count for label, finding in findings.items()}
    show(_counts_table(report.source + (f", read as {report.column_schema}" if report.column_schema else ""), counts))
    for name, tokens in {"prompt": report.prompt_tokens, "anchor": report.anchor_tokens}.items():
        if tokens is not None:
            parts = [f"{part} {tokens[key]}" for key, part in _QUANTILES.items()]
            show(f"{name} tokens: {', '.join(parts)}")
    for label, finding in findings.items():
        if finding.examples and label != _COMPARED[Status.OK]:
            show(f"\n{label}, for example:")
            for example in finding.examples:
                show(f"  {example}")
    usability, reason = report.verdict()
    style = "bold green" if usability == "usable" else "bold red"
    show(f"\n{usability[0].upper()}{usability[1:]}: {reason}", style=style)


def _print_subset(subset: Subset, out: Path, num_wanted: int) -> None:
    counts = {
        "rows read": subset.num_usable + sum(subset.dropped.values()),
        **{f"rows dropped: {reason}": count for reason, count in subset.dropped.items()},
        "usable problems": subset.num_usable,
        "problems written": len(subset.problems),
    }
    show(_counts_table(str(out), counts))
    if len(subset.problems) < num_wanted:
        show(f"Fewer than the {num_wanted:,} requested: the source has no more.", style="bold")
    show(f"sha256 {hashlib.sha256(out.read_bytes()).hexdigest()}")


def _counts_table(title: str, counts: dict[str, int]) -> Table:
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, count in counts.items():
        table.add_row(escape(label), f"{count:,}")
    return table
