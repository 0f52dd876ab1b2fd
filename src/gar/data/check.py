"""Check a data source before a run: what would be loaded, what would be dropped, and what looks wrong.

One pass. Memory holds a hash per prompt and id, the place of everything found, and the final answers.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tqdm import tqdm

from gar.data.problems import iter_problems, prompt_hash, schema_of
from gar.errors import DataError
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Status, Tags
from gar.verify import Graded, Verifier, parse_response

_BATCH = 512
_Item = tuple[str | None, str, str]  # an answer, a gold answer, and the row as findings name it
Usability = Literal["usable", "usable for GRPO only", "not usable"]


@dataclass(kw_only=True, slots=True)
class DataReport:
    """Contents of a source. `load_problems` rejects the `errors`. The user judges the rest.

    A finding is the place of its row. `dropped` has them by reason, `comparisons` by the status of the final answer of
    an expert solution, verified against the gold answer. `unreadable` are gold answers that cannot be parsed.
    """

    source: str
    column_schema: str = ""
    num_problems: int = 0
    num_anchors: int = 0
    errors: list[DataError] = field(default_factory=list)
    dropped: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    without_anchor: list[str] = field(default_factory=list)
    repeated_prompts: list[str] = field(default_factory=list)
    comparisons: defaultdict[Status, list[str]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[str] = field(default_factory=list)

    def verdict(self) -> tuple[Usability, str]:
        """How usable the source is, and why."""
        wrong = self.comparisons[Status.WRONG]
        if self.errors:
            more = f" And {len(self.errors) - 1:,} more." if len(self.errors) > 1 else ""
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
    answers: list[_Item] = []
    golds: list[_Item] = []
    ids, prompts = set[int](), set[int]()
    try:
        problems = iter_problems(
            source,
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
            if compare:
                golds.append(("0", problem.answer, example))  # compared, so that it is parsed
                for anchor in problem.anchors:
                    format = "think-answer" if Tags().answer_open in anchor.text else "none"
                    answers.append((parse_response(anchor.text, format=format).answer, problem.answer, example))
        report.column_schema = schema_of(source, options).name
    except DataError as error:  # no rows, missing columns, a source that cannot be read: nothing follows
        report.errors.append(error)
    if not report.num_problems and not report.errors:
        report.errors.append(DataError(f"{source}: no row gives a problem. Is this the right schema?"))
    with Verifier() as verifier:  # answers that hang use up the time of their batch, not of all
        for (answer, gold, example), outcome in _graded(answers, verifier):
            detail = f" ({outcome.detail})" if outcome.detail else ""
            line = f"{example}: expert solution ends in {answer!r}, gold is {gold!r}{detail}"
            report.comparisons[outcome.status].append(line)
        for (_, _, example), outcome in _graded(golds, verifier):
            if outcome.status is Status.ERROR:
                report.unreadable.append(f"{example}: {outcome.detail}")
    return report


def _seen(hashes: set[int], new: int) -> bool:
    known = new in hashes
    hashes.add(new)
    return known


def _graded(items: Sequence[_Item], verifier: Verifier) -> Iterator[tuple[_Item, Graded]]:
    """Compare answers with gold answers, in batches."""
    for start in tqdm(range(0, len(items), _BATCH), desc="comparing", delay=2, disable=None):
        batch = items[start : start + _BATCH]
        answers, golds, _ = zip(*batch, strict=True)
        yield from zip(batch, verifier.grade_answers(answers, golds, [""] * len(batch)), strict=True)
