"""`gar data`: `check` and `prepare` problems, `guide` those that are too hard, convert them for `slime` and `verl`."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gar.cli.guide import guide
from gar.cli.outcomes import DEGENERATE, DONE, REFUSED
from gar.data.check import NUM_EXAMPLES, DataReport, Usability, check_problems
from gar.data.prepare import Subset, check_suffix, draw_subset, length_refusal, write_problems
from gar.data.problems import ProblemReader, load_problems, prompt_text
from gar.data.prompts import PromptTemplate
from gar.data.rows import check_source
from gar.data.slime import write_slime_rows
from gar.errors import ConfigError
from gar.records.files import json_text, write_atomic
from gar.settings import DEFAULT_SOURCE, SourceSettings, TagSettings
from gar.types import Problem, Status

Source = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
Out = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
Reading = tyro.conf.OmitArgPrefixes[SourceSettings]
JsonPath = Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")]

_STATUSES: dict[Usability, int] = {"usable": DONE, "usable for GRPO only": DEGENERATE, "not usable": REFUSED}

_TAGS = TagSettings()

_QUANTILES = {"min": "min", "median": "median", "p90": "90 %", "p99": "99 %", "max": "max"}
_COMPARED = {
    Status.OK: "expert answers that agree with the gold answer",
    Status.WRONG: "expert answers that disagree with the gold answer",
    Status.UNPARSED: "expert solutions without a readable answer",
    Status.TIMEOUT: "comparisons that took too long",
    Status.ERROR: "comparisons that failed, or gold answers that cannot be read",
}


def main(args: list[str]) -> int:
    """Run `gar data ...`. The exit status of `check` is that of its verdict."""
    return tyro.extras.subcommand_cli_from_dict(
        {"check": check, "prepare": prepare, "guide": guide, "slime": slime, "verl": verl},
        args=args,
        prog="gar data",
        description="Look at training problems, draw a subset, or write it for slime or verl.",
    )


def check(
    source: Source,
    reading: Reading = DEFAULT_SOURCE,
    tokenizer: str | None = None,
    json_path: JsonPath = None,
    compare: bool = True,
    num_workers: int = 2,
    benchmark: str | None = None,
) -> int:
    """Report what a source holds, what would be dropped, and what looks wrong.

    Verdict and status: usable (0), usable for GRPO only (3), not usable (1).

    Args:
        source: A .jsonl, .parquet, .csv or .json file, a folder of such files, or a Hub id (owner/name).
        reading: How to read the source.
        tokenizer: Measure prompts and anchors with the tokenizer of this folder, Hub id or "embedded".
        json_path: Also write the report to this file.
        compare: Compare the final answer of every expert solution with the gold answer.
        num_workers: Processes that compare answers.
        benchmark: Also count the problems of this benchmark that the source holds: a name or file, as in gar eval.
    """
    check_source(source)
    workers = num_workers if compare else 0
    report = check_problems(source, options=reading, tokenizer=_load_tokenizer(tokenizer), compare_workers=workers)
    _print_report(report)
    if json_path is not None:
        write_atomic(json_path, json_text(dataclasses.asdict(report), indent=2) + "\n")
    if benchmark is not None:
        _print_contamination(source, reading, benchmark)
    return _STATUSES[report.verdict()[0]]


def _print_contamination(source: str, reading: SourceSettings, benchmark: str) -> None:
    """How many problems of a benchmark a source holds, and the worst of them."""
    from gar.evaluation.benchmarks import load_benchmark
    from gar.evaluation.contamination import find_overlaps

    problems = {problem.id: prompt_text(problem.question) for problem in load_benchmark(benchmark).problems}
    rows = (
        (place, prompt_text(item.prompt)) for place, item in ProblemReader(source, reading) if isinstance(item, Problem)
    )
    overlaps = find_overlaps(rows, problems)
    counts = {
        "problems": len(problems),
        "with an exact copy": sum(overlap.num_exact > 0 for overlap in overlaps.values()),
        "whole in one row": sum(overlap.shared_fraction == 1 for overlap in overlaps.values()),
        "sharing 13 words with a row": sum(overlap.num_sharing > 0 for overlap in overlaps.values()),
    }
    console = Console(highlight=False)
    console.print(_counts_table(f"{benchmark} in {source}", counts))
    worst = sorted(overlaps, key=lambda name: -overlaps[name].shared_fraction)[:NUM_EXAMPLES]
    for name in worst:
        if overlaps[name].place:
            place, share = overlaps[name].place, overlaps[name].shared_fraction
            console.print(f"  {name}: {share:.0%} in {place}", markup=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """What to read, and where to write."""

    source: Source
    """A .jsonl, .parquet, .csv or .json file, a folder of such files, or a Hub id (owner/name)."""
    out: Out
    """Where to write: .jsonl or .parquet. slime reads .jsonl, verl .parquet."""
    reading: Reading = DEFAULT_SOURCE
    overwrite: bool = False
    """Replace an existing file."""

    def check(self) -> None:
        """Reject an output that must not be written.

        Raises:
            ConfigError: The name of the output has another suffix, or the file exists.
        """
        check_suffix(self.out)
        if self.out.exists() and Path(self.source).exists() and self.out.samefile(self.source):
            raise ConfigError(f"{self.out} is the source itself; write the subset to another file.")
        if self.out.exists() and not self.overwrite:
            raise ConfigError(f"{self.out} exists. Add --overwrite to replace it.")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """Which problems to draw."""

    num_problems: int
    """Size of the subset."""
    seed: int = 0
    """Seed of the draw."""
    require_anchor: bool = True
    """Leave out problems without an expert solution."""
    tokenizer: str | None = None
    """Folder or Hub id of the tokenizer that the length limits count with, or "embedded"."""
    max_prompt_tokens: int | None = None
    """Leave out longer prompts, counted without the instruction of a prompt template."""
    max_anchor_tokens: int | None = None
    """Leave out problems with a longer expert solution."""


def prepare(files: tyro.conf.OmitArgPrefixes[Files], drawing: tyro.conf.OmitArgPrefixes[Drawing]) -> int:
    """Write a seeded random subset of the usable problems in our own columns.

    It depends on the prompts and the seed alone, not on the order of the rows.

    Subsets of one seed are nested.

    Repeated prompts are taken once.

    Args:
        files: What to read, and where to write.
        drawing: Which problems to draw.
    """
    files.check()
    limits = {"max_prompt_tokens": drawing.max_prompt_tokens, "max_anchor_tokens": drawing.max_anchor_tokens}
    limited = any(limit is not None for limit in limits.values())
    if limited and drawing.tokenizer is None:
        raise ConfigError("--max-prompt-tokens and --max-anchor-tokens need --tokenizer to count with.")
    subset = draw_subset(
        files.source,
        num_problems=drawing.num_problems,
        seed=drawing.seed,
        options=files.reading,
        require_anchor=drawing.require_anchor,
        refusal=length_refusal(_load_tokenizer(drawing.tokenizer), **limits) if limited else None,
    )
    write_problems(subset.problems, files.out)
    _print_subset(subset, files.out, drawing.num_problems)
    return 0


def slime(
    files: tyro.conf.OmitArgPrefixes[Files],
    template: PromptTemplate = "think-answer",
    chat: bool = True,
    tags: Annotated[TagSettings, tyro.conf.OmitArgPrefixes] = _TAGS,
) -> int:
    """Write problems for slime's --prompt-data, expert solutions in the metadata.

    Args:
        files: What to read, and where to write.
        template: Which response format the prompts ask for.
        chat: Prompts as chat messages, for slime's --apply-chat-template; else as text.
        tags: Markers of the think-answer format.
    """
    write = functools.partial(write_slime_rows, template=template, chat=chat, tags=tags.as_tags())
    return _rewrite(files, write)


def verl(
    files: tyro.conf.OmitArgPrefixes[Files],
    template: PromptTemplate = "think-answer",
    tags: Annotated[TagSettings, tyro.conf.OmitArgPrefixes] = _TAGS,
) -> int:
    """Write problems for verl's data files, with the expert solutions in extra_info.

    Args:
        files: What to read, and where to write.
        template: Which response format the prompts ask for.
        tags: Markers of the think-answer format.
    """
    from gar.integrations.verl.data import write_verl_problems

    write = functools.partial(write_verl_problems, template=template, tags=tags.as_tags())
    return _rewrite(files, write)


def _rewrite(files: Files, write: Callable[[list[Problem], Path], object]) -> int:
    """Write all problems of a source in another schema, and say how many."""
    files.check()
    loaded = load_problems(files.source, options=files.reading)
    write(loaded.problems, files.out)
    console = Console(highlight=False)
    for note in loaded.notes:
        console.print(note, markup=False, soft_wrap=True)
    counts = {"problems written": len(loaded.problems), "without an expert solution": loaded.num_without_anchor}
    console.print(_counts_table(str(files.out), counts))
    return 0


def _load_tokenizer(name: str | None) -> Any:
    if name is None:
        return None
    from gar.models.load import load_tokenizer

    return load_tokenizer(name)


def _print_report(report: DataReport) -> None:
    compared = {label: report.comparisons.get(status) for status, label in _COMPARED.items()}
    findings = {
        "problems without an anchor (legal, they earn no bonus)": report.without_anchor,
        **{f"rows dropped: {reason}": finding for reason, finding in report.dropped.items()},
        "repeated prompts": report.repeated_prompts,
        "prompts with a format tag in their text (harmless)": report.prompts_with_tags,
        **{label: finding for label, finding in compared.items() if finding},
        "errors": report.errors,
    }
    counts = {"problems": report.num_problems, "anchors": report.num_anchors}
    counts |= {label: finding.count for label, finding in findings.items()}
    console = Console(highlight=False)
    console.print(
        _counts_table(report.source + (f", read as {report.column_schema}" if report.column_schema else ""), counts)
    )
    for name, tokens in {"prompt": report.prompt_tokens, "anchor": report.anchor_tokens}.items():
        if tokens is not None:
            parts = [f"{part} {tokens[key]}" for key, part in _QUANTILES.items()]
            console.print(f"{name} tokens: {', '.join(parts)}")
    for label, finding in findings.items():
        if finding.examples and label != _COMPARED[Status.OK]:
            console.print(f"\n{label}, for example:", markup=False)
            for example in finding.examples:
                console.print(f"  {example}", markup=False, soft_wrap=True)
    usability, reason = report.verdict()
    style = "bold green" if usability == "usable" else "bold red"
    console.print(f"\n{usability[0].upper()}{usability[1:]}: {reason}", style=style, markup=False, soft_wrap=True)


def _print_subset(subset: Subset, out: Path, num_wanted: int) -> None:
    counts = {
        "rows read": subset.num_rows,
        **{f"rows dropped: {reason}": count for reason, count in subset.dropped.items()},
        "usable problems": subset.num_usable,
        **{f"set aside while drawing: {reason}": count for reason, count in subset.set_aside.items()},
        "problems written": len(subset.problems),
    }
    console = Console(highlight=False)
    console.print(_counts_table(str(out), counts))
    if len(subset.problems) < num_wanted:
        console.print(f"Fewer than the {num_wanted:,} requested: the source has no more.", style="bold")
    console.print(f"sha256 {hashlib.sha256(out.read_bytes()).hexdigest()}", soft_wrap=True)


def _counts_table(title: str, counts: dict[str, int]) -> Table:
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, count in counts.items():
        table.add_row(escape(label), f"{count:,}")
    return table
