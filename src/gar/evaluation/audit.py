"""Where graders disagree: our recorded verdicts, plain math-verify, equal text, and our rules as they are today.

A disagreement need not be a fault, but it is the place to look for one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from gar.data.rows import iter_rows, row_place
from gar.errors import DataError, RecordError
from gar.evaluation.folder import EvaluationFolder, evaluation_folders
from gar.types import Status, Tags
from gar.verify import Graded, parse_response
from gar.verify.answers import WARM_UP, grade_answer
from gar.verify.workers import WorkerPool

CaseKind = Literal["same text", "math-verify alone", "ours alone", "undecided", "changed"]
KINDS: dict[CaseKind, str] = {
    "same text": "not right by our verdict, though the answer has the gold answer's text",
    "math-verify alone": "right by math-verify, wrong by our verdict",
    "ours alone": "right by our verdict, wrong by math-verify, and the text differs",
    "undecided": "without our verdict: unparsed, timeout or error",
    "changed": "right or not right as recorded, and the opposite by the rules of this version",
}
"""Reasons to look at a response, the most suspicious first."""

_SAMPLES_PER_WINDOW = 1024
_REQUIRED = ("response", "status", "verified")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredSample:
    """One graded response.

    Attributes:
        place: A line of a file, or a problem and its sample, for messages.
        prompt: The problem.
        response: The whole text.
        gold: The right answer.
        answer: The final answer that our verifier found; None without one.
        status: How our verification ended.
        verified: Right by our verifier.
        detail: Our verifier's explanation.
        choice: The gold answer is the letter of a choice, which math-verify cannot grade.
    """

    place: str
    prompt: str
    response: str
    gold: str
    answer: str | None
    status: Status
    verified: bool
    detail: str = ""
    choice: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedSample:
    """A graded response, and the verdicts of other graders.

    Attributes:
        sample: The response as it was graded.
        math_verify: Status by plain math-verify; None for a choice.
        same_text: The answer has the gold answer's text.
        now: Status of the answer by today's rules; None for a choice, or without an answer.
    """

    sample: ScoredSample
    math_verify: Status | None
    same_text: bool
    now: Status | None = None

    @property
    def changed(self) -> bool:
        """Whether it was graded right and is not right by the rules of this version, or the other way round."""
        return self.now is not None and (self.now is Status.OK) != self.sample.verified

    @property
    def kind(self) -> CaseKind | None:
        """The disagreement between graders; None where there is none."""
        sample = self.sample
        if self.same_text and not sample.verified:
            return "same text"
        if sample.status not in (Status.OK, Status.WRONG):
            return "undecided"
        if self.math_verify is Status.OK and not sample.verified:
            return "math-verify alone"
        if self.math_verify is Status.WRONG and sample.verified and not self.same_text:
            return "ours alone"
        return None

    @property
    def kinds(self) -> list[CaseKind]:
        """All reasons to look at the response."""
        kinds: list[CaseKind] = ["changed"] if self.changed else []
        return [self.kind, *kinds] if self.kind else kinds


def audited(
    samples: Iterable[ScoredSample], *, num_workers: int = 2, timeout_seconds: float = 5.0
) -> Iterator[AuditedSample]:
    """Grade responses once more, in their order and in bounded memory.

    Args:
        samples: Graded responses.
        num_workers: Processes that run math-verify.
        timeout_seconds: Wall-clock limit for each response, after which its worker is killed.

    Yields:
        Each sample with the verdicts of the other graders.

    Raises:
        WorkerError: The worker processes cannot be started.
    """
    stream = iter(samples)
    limits: dict[str, Any] = {"num_workers": num_workers, "timeout_seconds": timeout_seconds, "warm_up": WARM_UP}
    with WorkerPool(plain_math_verify, **limits) as others, WorkerPool(grade_answer, **limits) as ours:
        while window := list(islice(stream, _SAMPLES_PER_WINDOW)):
            by_math_verify = _statuses(others, [None if s.choice else (s.response, s.gold) for s in window])
            now = _statuses(ours, [None if s.choice or not s.answer else (s.answer, s.gold, s.prompt) for s in window])
            for sample, math_verify, status in zip(window, by_math_verify, now, strict=True):
                same = same_text(sample.answer, sample.gold)
                yield AuditedSample(sample=sample, math_verify=math_verify, same_text=same, now=status)


def _statuses(pool: WorkerPool, items: list[tuple[str, ...] | None]) -> list[Status | None]:
    """How each item ended; None stays None."""
    outcomes = iter(pool.run([item for item in items if item is not None]))
    return [None if item is None else next(outcomes).status for item in items]


def plain_math_verify(response: str, gold: str) -> Graded:
    """math-verify as in its README: on the whole response, in which it looks for the answer itself.

    Its time limits are off, because they turn a slow answer into a wrong one. Call it in a worker that can be killed.

    Args:
        response: The whole text of a response.
        gold: The right answer.

    Returns:
        OK or WRONG; UNPARSED where it finds no expression in the response, ERROR where it finds none in the gold.
    """
    import math_verify

    gold_parsed = math_verify.parse(f"${gold.strip().strip('$')}$", parsing_timeout=0)
    if not gold_parsed:
        return Graded(status=Status.ERROR, detail="math-verify finds no expression in the gold answer")
    parsed = math_verify.parse(response, parsing_timeout=0)
    if not parsed:
        return Graded(status=Status.UNPARSED, detail="math-verify finds no expression in the response")
    right = math_verify.verify(gold_parsed, parsed, timeout_seconds=0, raise_on_error=True)
    return Graded(status=Status.OK, grade=1.0) if right else Graded(status=Status.WRONG)


def same_text(answer: str | None, gold: str) -> bool:
    """Whether a final answer is the gold answer, apart from white space, dollars and a full stop."""
    return answer is not None and _bare(answer) == _bare(gold)


def _bare(text: str) -> str:
    return "".join(text.replace("$", "").split()).rstrip(".")


def read_samples(path: Path) -> Iterator[ScoredSample]:
    """Graded responses of an evaluation, or of a file.

    Args:
        path: A folder that `gar eval score` has graded, or the folder above it; or a .jsonl or .parquet file with the
            columns prompt, response, status, verified and answer, the right answer. If there is a column gold, as in
            the rollouts of a training run, gold is the right answer and answer the one found in the response.

    Raises:
        DataError: A column is missing, or a value is wrong; names the line.
        RecordError: The folder holds no evaluation, or one of its files is damaged.
    """
    if path.suffix in (".jsonl", ".ndjson", ".parquet", ".pq"):
        for number, row in iter_rows(str(path)):
            yield _from_row(row, row_place(str(path), number))
    else:
        for folder in evaluation_folders(path):
            yield from _from_folder(folder)


def _from_row(row: Mapping[str, Any], place: str) -> ScoredSample:
    gold = row.get("gold", row.get("answer"))
    missing = [name for name in _REQUIRED if row.get(name) is None] + ([] if gold is not None else ["answer"])
    if missing:
        raise DataError(
            f"{place}: nothing in {', '.join(map(repr, missing))}; found {', '.join(map(repr, row))}. Expected the "
            "columns prompt, response, answer, status, verified. Are these graded responses?"
        )
    if row["status"] not in list(Status):
        raise DataError(f"{place}: unknown status {row['status']!r}, expected one of {', '.join(Status)}.")
    response = str(row["response"])
    return ScoredSample(
        place=place,
        prompt=str(row.get("prompt") or ""),
        response=response,
        gold=str(gold),
        answer=row.get("answer") if "gold" in row else _final_answer(response),
        status=Status(row["status"]),
        verified=bool(row["verified"]),
        detail=str(row.get("detail") or ""),
    )


def _final_answer(response: str) -> str | None:
    tagged = Tags().answer_open in response
    return parse_response(response, format="think-answer" if tagged else "none").answer


def _from_folder(folder: EvaluationFolder) -> Iterator[ScoredSample]:
    problems = {problem["id"]: problem for problem in folder.problems()}
    verdicts = {(verdict["problem"], verdict["sample"]): verdict for verdict in folder.verdicts}
    if not verdicts:
        raise DataError(f"{folder.path}: no verdicts yet. `gar eval score {folder.path}` makes them.")
    for sample in folder.samples:
        verdict = verdicts.pop((sample["problem"], sample["sample"]), None)
        if verdict is None:
            continue  # generated since it was graded
        problem = problems.get(sample["problem"])
        if problem is None:
            raise RecordError(f"{folder.problems_path}: no problem {sample['problem']!r}. Was the file cut off?")
        yield ScoredSample(
            place=f"{folder.path.name} {sample['problem']} #{sample['sample']}",
            prompt=str(problem["prompt"]),
            response=sample["text"],
            gold=problem["answer"],
            answer=verdict["answer"],
            status=Status(verdict["status"]),
            verified=verdict["verified"],
            detail=verdict["detail"],
            choice=bool(problem["num_choices"]),
        )
    if verdicts:
        raise RecordError(f"{folder.samples.path}: {len(verdicts):,} graded samples are lost. Was the file cut off?")
