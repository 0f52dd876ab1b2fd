"""Check a data source before a run: what would be loaded, what would be dropped, and what looks wrong.

One pass. Memory holds a hash per prompt and id, and the place of everything found.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

from gar.data.problems import iter_problems, prompt_hash, schema_of
from gar.data.traps import find_traps, is_guessable
from gar.errors import DataError
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Problem, Status
from gar.verify import Verifier, grade_without_parser, parse_response
from gar.verify.boxes import boxed_contents
from gar.verify.formats import DEFAULT_TAGS
from gar.verify.grades import Graded

_BATCH = 512
_grade = lru_cache(1024)(grade_without_parser)  # many answers are small numbers
_MOST_WORKERS = 16
_COUNTED = 10_000  # problems whose gold answers are counted
_FEW, _COMMON = 50, 0.2
Usability = Literal["usable", "usable for GRPO only", "not usable"]


@dataclass(kw_only=True, slots=True)
class DataReport:
    """Contents of a source. `load_problems` rejects the `errors`. The user judges the rest.

    A finding is the place of its row. `dropped` has them by reason, `comparisons` by the status of the final answer of
    an expert solution, verified against the gold answer, but for the `num_agreeing` that agree. `unreadable` are gold
    answers that cannot be parsed, `several_boxes` those that are the last of different boxes of their solution,
    `guessable` those that are a letter, yes or no. `answers` counts the gold answers of the first problems. `traps` are
    by the results of `find_traps`.
    """

    source: str
    column_schema: str = ""
    num_problems: int = 0
    num_anchors: int = 0
    errors: list[DataError] = field(default_factory=list)
    dropped: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    without_anchor: list[str] = field(default_factory=list)
    repeated_prompts: list[str] = field(default_factory=list)
    several_boxes: list[str] = field(default_factory=list)
    traps: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    num_agreeing: int = 0
    comparisons: defaultdict[Status, list[str]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[str] = field(default_factory=list)
    guessable: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def common_answer(self) -> tuple[str, float] | None:
        """A gold answer that at least a fifth of the first problems share, and its share. None of fewer than 50."""
        [(answer, count)] = self.answers.most_common(1) or [("", 0)]
        share = count / max(self.answers.total(), 1)
        return (answer, share) if self.answers.total() >= _FEW and share >= _COMMON else None

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
        problems = iter_problems(
            source,
            options,
            on_error=report.errors.append,
            on_drop=lambda place, reason: report.dropped[reason].append(place),
        )
        noted = _noted(report, problems, compare)
        with Verifier(num_workers=min(os.cpu_count() or 1, _MOST_WORKERS)) as verifier:
            while some := list(islice(noted, _BATCH)):
                _compare(report, verifier, some)
        report.column_schema = schema_of(source, options).name
    except DataError as error:  # no rows, missing columns, a source that cannot be read: nothing follows
        report.errors.append(error)
    if not report.num_problems and not report.errors:
        report.errors.append(DataError(f"{source}: no row gives a problem. Is this the right schema?"))
    return report


class _Answers(NamedTuple):
    """What there is to compare of a problem.

    Attributes:
        example: The problem, as findings name it.
        gold: The gold answer.
        graded: The final answers of the expert solutions and then "0", which is an error if the gold answer is
            unreadable. Each has its outcome if it needs no parser.
    """

    example: str
    gold: str
    graded: list[tuple[str, Graded | None]]


def _noted(report: DataReport, problems: Iterable[tuple[str, Problem]], compare: bool) -> Iterator[_Answers]:
    """The answers of each problem, if they are to be compared. Notes what else there is to see."""
    ids, prompts = set[int](), set[int]()
    for place, problem in problems:
        example = f"{place}: problem {problem.id!r}"
        report.num_problems += 1
        report.num_anchors += len(problem.anchors)
        if not problem.anchors:
            report.without_anchor.append(example)
        for trap in find_traps(problem):
            report.traps[trap].append(example)
        for boxes in (boxed_contents(anchor.text) for anchor in problem.anchors):
            if len(set(boxes)) > 1 and problem.answer == boxes[-1]:
                report.several_boxes.append(f"{example}: {', '.join(map(repr, boxes))}")
        if _seen(ids, hash(problem.id)):
            report.errors.append(DataError(f"{example}: the id was already used by an earlier row"))
        if _seen(prompts, prompt_hash(problem.prompt)):
            report.repeated_prompts.append(example)
        if is_guessable(problem.answer):
            report.guessable.append(f"{example}: {problem.answer!r}")
        if report.num_problems <= _COUNTED:
            report.answers[problem.answer] += 1
        answers = [*(_final_answer(anchor.text) for anchor in problem.anchors), "0"] if compare else []
        yield _Answers(example, problem.answer, [(answer, _grade(answer, problem.answer)) for answer in answers])


def _seen(hashes: set[int], new: int) -> bool:
    known = new in hashes
    hashes.add(new)
    return known


def _compare(report: DataReport, verifier: Verifier, some: Sequence[_Answers]) -> None:
    """Note what the final answers of some problems are worth. Those that hang use up the time of these, not of all."""
    # Only what no rule decides goes to the processes that parse.
    rows = [(answer, each.gold) for each in some for answer, outcome in each.graded if outcome is None]
    parsed = iter(verifier.grade_answers([row[0] for row in rows], [row[1] for row in rows], [""] * len(rows)))
    for example, gold, unparsed in some:
        graded = [(answer, outcome or next(parsed)) for answer, outcome in unparsed]
        for answer, outcome in graded[:-1]:
            if outcome.status is Status.OK:
                report.num_agreeing += 1
            else:
                reason = f" ({outcome.detail})" if outcome.detail else ""
                finding = f"{example}: expert solution ends in {answer!r}, gold is {gold!r}{reason}"
                report.comparisons[outcome.status].append(finding)
        for _, outcome in graded[-1:]:
            if outcome.status is Status.ERROR:
                report.unreadable.append(f"{example}: {outcome.detail}")


def _final_answer(solution: str) -> str:
    format = "think-answer" if DEFAULT_TAGS.answer_open in solution else "none"
    return parse_response(solution, format=format).answer or ""
