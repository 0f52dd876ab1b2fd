"""Check a data source before a run: what would be loaded, what would be dropped, and what looks wrong.

One pass. Memory holds a hash per prompt and id, and the place of everything found.
"""

import os
import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from gar.data.problems import iter_problems, prompt_hash, schema_of
from gar.errors import DataError
from gar.settings import DEFAULT_SOURCE, SourceSettings, VerifySettings
from gar.types import Problem, Status
from gar.verify.answers import WARM_UP
from gar.verify.grades import Graded
from gar.verify.keeper import Setup
from gar.verify.solutions import compared, compared_exactly, finding
from gar.verify.workers import WorkerPool

_BATCH = 512
_MOST_WORKERS = 16
Usability = Literal["usable", "usable for GRPO only", "not usable"]


@dataclass(kw_only=True, slots=True)
class DataReport:
    """Contents of a source. `load_problems` rejects the `errors`. The user judges the rest.

    A finding is the place of its row. `dropped` has them by reason, `comparisons` by the status of the final answer of
    an expert solution, verified against the gold answer, but for the `num_agreeing` that agree. `unreadable` are gold
    answers that cannot be parsed.
    """

    source: str
    column_schema: str = ""
    num_problems: int = 0
    num_anchors: int = 0
    errors: list[DataError] = field(default_factory=list)
    dropped: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    without_anchor: list[str] = field(default_factory=list)
    repeated_prompts: list[str] = field(default_factory=list)
    num_agreeing: int = 0
    comparisons: defaultdict[Status, list[str]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[str] = field(default_factory=list)

    def verdict(self) -> tuple[Usability, str]:
        """How usable the source is, and why."""
        wrong = self.comparisons[Status.WRONG]
        if self.errors:
            more = f" (and {len(self.errors) - 1:,} more)" if len(self.errors) > 1 else ""
            return "not usable", str(self.errors[0]) + more
        if len(self.unreadable) > self.num_problems / 2:
            return "not usable", (
                f"most gold answers cannot be read, for example {self.unreadable[0]}. Is it their column "
                "(--answer-field)? A custom grader (--verify.verifier) may read them."
            )
        if not self.num_anchors:
            return "usable for GRPO only", "no problem has an expert solution. Name their column with --expert-fields."
        anchored = self.num_problems - len(self.without_anchor)
        reason = f"{self.num_problems:,} problems, {anchored:,} with an expert solution."
        if wrong:
            reason += f" Look at the {len(wrong):,} expert solutions that disagree with the gold answer."
        return "usable", reason


def check_problems(source: str, *, options: SourceSettings = DEFAULT_SOURCE, compare: bool = False) -> DataReport:
    """Read a whole source and report on it. Bad rows are reported, not raised.

    `compare` parses every gold answer, and verifies the final answer of every expert solution against it. There are no
    errors exactly if `load_problems` succeeds.
    """
    report = DataReport(source=source)
    try:
        found = _noted(report, options)
        with closing(_Comparison(report)) as comparison:
            while some := list(islice(found, _BATCH)):
                if compare:
                    comparison.add(some)
        report.column_schema = schema_of(source, options).name
    except DataError as error:  # no rows, missing columns, a source that cannot be read: nothing follows
        report.errors.append(error)
    if not report.num_problems and not report.errors:
        report.errors.append(DataError(f"{source}: no row gives a problem. Is this the right schema?"))
    return report


def _noted(report: DataReport, options: SourceSettings) -> Iterator[tuple[str, Problem]]:
    """The problems of a source, each as findings name it. Notes what can be seen without its answers."""
    ids, prompts = set[int](), set[int]()
    problems = iter_problems(
        report.source,
        options,
        on_error=report.errors.append,
        on_drop=lambda place, reason: report.dropped[reason].append(place),
    )
    for place, problem in problems:
        example = f"{place}: problem {problem.id!r}"
        report.num_problems += 1
        report.num_anchors += len(problem.anchors)
        if not problem.anchors:
            report.without_anchor.append(example)
        if _seen(ids, hash(problem.id)):
            report.errors.append(DataError(f"{example}: the id was already used by an earlier row"))
        if _seen(prompts, prompt_hash(problem.prompt)):
            report.repeated_prompts.append(example)
        yield example, problem


def _seen(hashes: set[int], new: int) -> bool:
    known = new in hashes
    hashes.add(new)
    return known


class _Comparison:
    """Compares final answers with gold answers, and notes what it finds.

    Worker processes on all cores do that for answers that need a parser. To send them the others takes longer than to
    compare these here.
    """

    def __init__(self, report: DataReport):
        self._report = report
        limits = VerifySettings().model_dump(include={"timeout_seconds", "memory_bytes"})
        setup = Setup(function=pickle.dumps(compared), warm_up=WARM_UP, **limits)
        self._pool = WorkerPool(setup, min(os.cpu_count() or 1, _MOST_WORKERS))

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def add(self, found: Sequence[tuple[str, Problem]]) -> None:
        """Compare the answers of some problems. Those that hang use up the time of these, not of all."""
        solutions = [(example, anchor.text, problem.answer) for example, problem in found for anchor in problem.anchors]
        golds = [(example, "", problem.answer) for example, problem in found]
        outcomes = self._outcomes([(text, gold) for _, text, gold in (*solutions, *golds)])
        for example, text, gold in solutions:
            outcome = outcomes[text, gold]
            if outcome.status is Status.OK:
                self._report.num_agreeing += 1
            else:
                self._report.comparisons[outcome.status].append(f"{example}: {finding(outcome, text, gold)}")
        for example, _, gold in golds:
            if outcomes["", gold].status is Status.ERROR:
                self._report.unreadable.append(f"{example}: {outcomes['', gold].detail}")

    def _outcomes(self, items: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Graded]:
        exact = {item: compared_exactly(*item) for item in items}
        known = {item: outcome for item, outcome in exact.items() if outcome is not None}
        unclear = [item for item in exact if item not in known]
        return known | dict(zip(unclear, self._pool.run(unclear), strict=True))
