"""Check a data source before a run: what would be loaded, what would be dropped, and what looks wrong.

One pass. Memory holds a hash per prompt and id, and the place of everything found.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import Literal, NamedTuple

from gar.data.problems import look_at_problems, prompt_hash, schema_of
from gar.errors import DataError
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Problem, Status
from gar.verify import Verifier, grade_without_parser, parse_response
from gar.verify.boxes import boxed_contents
from gar.verify.format import DEFAULT_TAGS
from gar.verify.grades import Graded

_BATCH = 512
_grade = lru_cache(1024)(grade_without_parser)  # many answers are small numbers
_MOST_WORKERS = 16
Usability = Literal["usable", "usable for GRPO only", "not usable"]


@dataclass(kw_only=True, slots=True)
class DataReport:
    """Contents of a source. `load_problems` rejects the `errors`. The user judges the rest.

    A finding is the place of its row. `dropped` has them by reason, `comparisons` by the status of the final answer of
    an expert solution, verified against the gold answer, but for the `num_agreeing` that agree. `unreadable` are gold
    answers that cannot be parsed, `several_boxes` those that are the last of different boxes of their solution.
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
        looks = look_at_problems(
            source,
            partial(_look, compare=compare),
            options,
            on_error=report.errors.append,
            on_drop=lambda place, reason: report.dropped[reason].append(place),
        )
        noted = _noted(report, looks)
        with Verifier(num_workers=min(os.cpu_count() or 1, _MOST_WORKERS)) as verifier:
            while some := list(islice(noted, _BATCH)):
                _compare(report, verifier, some)
        report.column_schema = schema_of(source, options).name
    except DataError as error:  # no rows, missing columns, a source that cannot be read: nothing follows
        report.errors.append(error)
    if not report.num_problems and not report.errors:
        report.errors.append(DataError(f"{source}: no row gives a problem. Is this the right schema?"))
    return report


class _Look(NamedTuple):
    """What a process sees of a problem.

    Attributes:
        id: Of the problem.
        prompt: Its hash.
        num_anchors: Number of expert solutions.
        boxes: Different boxes of solutions whose last one is the gold answer, as text.
        graded: The final answers of the expert solutions and then "0", each with its outcome if it needs no parser.
        gold: The gold answer.
    """

    id: str
    prompt: int
    num_anchors: int
    boxes: list[str]
    graded: list[tuple[str, Graded | None]]
    gold: str


def _look(problem: Problem, compare: bool) -> _Look:
    boxes = [boxed_contents(anchor.text) for anchor in problem.anchors]
    answers = [_final_answer(anchor.text) for anchor in problem.anchors] if compare else []
    answers += ["0"] if compare else []  # an error if the gold answer is unreadable
    return _Look(
        id=problem.id,
        prompt=prompt_hash(problem.prompt),
        num_anchors=len(problem.anchors),
        boxes=[", ".join(map(repr, each)) for each in boxes if len(set(each)) > 1 and problem.answer == each[-1]],
        graded=[(answer, _grade(answer, problem.answer)) for answer in answers],
        gold=problem.answer,
    )


def _noted(report: DataReport, looks: Iterable[tuple[str, _Look]]) -> Iterator[tuple[str, _Look]]:
    """The problems, each as findings name it. Notes what was seen but for the answers."""
    ids, prompts = set[int](), set[int]()
    for place, look in looks:
        example = f"{place}: problem {look.id!r}"
        report.num_problems += 1
        report.num_anchors += look.num_anchors
        if not look.num_anchors:
            report.without_anchor.append(example)
        report.several_boxes += [f"{example}: {boxes}" for boxes in look.boxes]
        if _seen(ids, hash(look.id)):
            report.errors.append(DataError(f"{example}: the id was already used by an earlier row"))
        if _seen(prompts, look.prompt):
            report.repeated_prompts.append(example)
        yield example, look


def _seen(hashes: set[int], new: int) -> bool:
    known = new in hashes
    hashes.add(new)
    return known


def _compare(report: DataReport, verifier: Verifier, looks: Sequence[tuple[str, _Look]]) -> None:
    """Note what the final answers of some problems are worth. Those that hang use up the time of these, not of all."""
    rows = [(answer, look.gold) for _, look in looks for answer, outcome in look.graded if outcome is None]
    parsed = iter(verifier.grade_answers([row[0] for row in rows], [row[1] for row in rows], [""] * len(rows)))
    for example, look in looks:
        graded = [(answer, outcome or next(parsed)) for answer, outcome in look.graded]
        for answer, outcome in graded[:-1]:
            if outcome.status is Status.OK:
                report.num_agreeing += 1
            else:
                reason = f" ({outcome.detail})" if outcome.detail else ""
                finding = f"{example}: expert solution ends in {answer!r}, gold is {look.gold!r}{reason}"
                report.comparisons[outcome.status].append(finding)
        for _, outcome in graded[-1:]:
            if outcome.status is Status.ERROR:
                report.unreadable.append(f"{example}: {outcome.detail}")


def _final_answer(solution: str) -> str:
    format = "think-answer" if DEFAULT_TAGS.answer_open in solution else "none"
    return parse_response(solution, format=format).answer or ""
