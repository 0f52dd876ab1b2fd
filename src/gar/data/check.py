"""Check a data source before a run: what would be loaded, what would be dropped, and what looks wrong.

One pass in bounded memory: counts, a hash per prompt and id, and a few examples of everything found.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from gar.data.problems import iter_problems, prompt_hash, schema_of
from gar.errors import DataError
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Anchor, Problem, ResponseFormat, Status, Tags
from gar.verify import Verifier

Usability = Literal["usable", "usable for GRPO only", "not usable"]

NUM_EXAMPLES = 5
_BATCH_PROBLEMS = 512


@dataclass(kw_only=True, slots=True)
class Occurrences:
    """Number of findings of one kind, and the places of the first few."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: object) -> None:
        """Count a finding."""
        self.count += 1
        if len(self.examples) < NUM_EXAMPLES:
            self.examples.append(str(example))


@dataclass(kw_only=True, slots=True)
class DataReport:
    """Contents of a source. `load_problems` rejects the `errors`. The user judges the rest.

    `comparisons` counts expert solutions by the status of their final answer, verified against the gold answer.
    """

    source: str
    column_schema: str = ""
    num_problems: int = 0
    num_anchors: int = 0
    errors: Occurrences = field(default_factory=Occurrences)
    dropped: dict[str, Occurrences] = field(default_factory=dict)
    without_anchor: Occurrences = field(default_factory=Occurrences)
    repeated_prompts: Occurrences = field(default_factory=Occurrences)
    comparisons: dict[str, Occurrences] = field(default_factory=dict)

    def drop(self, place: str, reason: str) -> None:
        """Count a row that gives no problem."""
        self.dropped.setdefault(reason, Occurrences()).add(place)

    def verdict(self) -> tuple[Usability, str]:
        """How usable the source is, and why."""
        num_compared = sum(finding.count for finding in self.comparisons.values())
        unreadable, wrong = (self.comparisons.get(status, Occurrences()) for status in (Status.ERROR, Status.WRONG))
        if self.errors.count:
            more = f" And {self.errors.count - 1:,} more." if self.errors.count > 1 else ""
            return "not usable", self.errors.examples[0] + more
        if unreadable.count > num_compared / 2:
            return "not usable", (
                f"most gold answers cannot be read, for example {unreadable.examples[0]}. Is it their column "
                "(--answer-field)? A custom grader (--verify.verifier) may read them."
            )
        if not self.num_anchors:
            return "usable for GRPO only", "no problem has an expert solution. Name their column with --anchor-fields."
        anchored = self.num_problems - self.without_anchor.count
        reason = f"{self.num_problems:,} problems, {anchored:,} with an expert solution."
        if wrong.count:
            reason += f" Look at the {wrong.count:,} expert solutions that disagree with the gold answer."
        return "usable", reason


def check_problems(source: str, *, options: SourceSettings = DEFAULT_SOURCE, compare_workers: int = 0) -> DataReport:
    """Read a whole source and report on it. Bad rows are reported, not raised.

    `compare_workers` processes compare the final answer of every expert solution with the gold answer. 0 compares
    nothing.

    Returns:
        The report. `errors.count` is 0 exactly if `load_problems` succeeds.
    """
    report = DataReport(source=source)
    formats: tuple[ResponseFormat, ...] = ("think-answer", "none") if compare_workers else ()
    with ExitStack() as stack:
        verifiers = [stack.enter_context(Verifier(format=format, num_workers=compare_workers)) for format in formats]
        problems = _counted(source, options, report)
        while batch := list(islice(problems, _BATCH_PROBLEMS)):
            anchors = [(place, problem, anchor) for place, problem in batch for anchor in problem.anchors]
            _compare(anchors, verifiers, report)
    if not report.num_problems and not report.errors.count:
        report.errors.add(f"{source}: no row gives a problem. Is this the right schema?")
    return report


def _counted(source: str, options: SourceSettings, report: DataReport) -> Iterator[tuple[str, Problem]]:
    """Yield the problems of a source with their places, and count rows in the report."""
    ids, prompts = set[int](), set[int]()
    try:
        for place, problem in iter_problems(source, options, on_error=report.errors.add, on_drop=report.drop):
            example = f"{place}: problem {problem.id!r}"
            report.num_problems += 1
            report.num_anchors += len(problem.anchors)
            if not problem.anchors:
                report.without_anchor.add(example)
            if _seen(ids, hash(problem.id)):
                report.errors.add(f"{example}: the id was already used by an earlier row")
            if _seen(prompts, prompt_hash(problem.prompt)):
                report.repeated_prompts.add(example)
            yield place, problem
        report.column_schema = schema_of(source, options).name
    except DataError as error:  # no rows, missing columns, a source that cannot be read: nothing follows
        report.errors.add(error)


def _seen(hashes: set[int], new: int) -> bool:
    known = new in hashes
    hashes.add(new)
    return known


def _compare(anchors: Sequence[tuple[str, Problem, Anchor]], verifiers: Sequence[Verifier], report: DataReport) -> None:
    """Compare the final answers of expert solutions, with or without tags, with the gold answers."""
    for verifier in verifiers:
        tagged = verifier.format == "think-answer"
        chosen = [row for row in anchors if (Tags().answer_open in row[2].text) == tagged]
        texts, golds = [anchor.text for *_, anchor in chosen], [problem.answer for _, problem, _ in chosen]
        for (place, problem, _), verdict in zip(chosen, verifier.verify(texts, golds), strict=True):
            detail = f" ({verdict.detail})" if verdict.detail else ""
            report.comparisons.setdefault(verdict.status, Occurrences()).add(
                f"{place}: problem {problem.id!r}: expert solution ends in {verdict.answer!r}, gold is "
                f"{problem.answer!r}{detail}"
            )
