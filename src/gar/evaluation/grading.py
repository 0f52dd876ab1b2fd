"""`gar eval score`: write a verdict for every sample into an append-only file, then the numbers. Needs no model.

As in training, a sample is *correct* if its answer is right and it keeps the required format. Every sample that keeps
the format and has an answer *votes* for the value of its answer: `1/2` and `\\frac{1}{2}` vote for the same value. The
others abstain.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from tqdm import tqdm

from gar.data.problems import prompt_text
from gar.errors import ConfigError, RecordError
from gar.evaluation.benchmarks.columns import LETTERS
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.job import ScoreSettings
from gar.evaluation.metrics import default_ks, write_metrics
from gar.records.resumable import Line
from gar.types import ResponseFormat, Status, Verdict
from gar.verify import Verifier, parse_response
from gar.verify.answers import WARM_UP, grade_answer, grade_exactly
from gar.verify.choices import chosen_letters
from gar.verify.workers import WorkerPool

_SAMPLES_PER_WINDOW = 1024


def score(folder: EvaluationFolder, settings: ScoreSettings) -> dict[str, Any]:
    """Grade every sample that has no verdict yet, and write `metrics.json`.

    Args:
        folder: A complete evaluation, with every sample.
        settings: How to grade.

    Returns:
        The numbers, as `metrics.json` holds them.

    Raises:
        ConfigError: A k is larger than the number of samples, or existing verdicts have another format.
        LockedError: Another process writes there.
        RecordError: Samples are missing, or a file cannot be read or written.
    """
    identity = folder.identity()
    num_samples = identity["sampling"]["num_samples"]
    ks = settings.pass_at_k or default_ks(num_samples)
    if too_large := [k for k in ks if k > num_samples]:
        raise ConfigError(
            f"pass@{too_large[0]} needs at least {too_large[0]} samples per problem; {folder.path} has {num_samples}. "
            "Generate more, with another --out, or drop it from --pass-at-k."
        )
    format: ResponseFormat = settings.format or identity["prompt"]["format"]
    problems = folder.problems()
    if len(problems) != identity["benchmark"]["num_problems"]:
        raise RecordError(
            f"{folder.problems_path}: {len(problems)} problems, but set.json says "
            f"{identity['benchmark']['num_problems']}. Was the file changed by hand or cut off?"
        )
    with folder.alone():
        _require_all_samples(folder, problems, num_samples)
        done: set[tuple[str, int]] = set()
        for line in folder.verdicts:
            if line["format"] != format:
                raise ConfigError(
                    f"{folder.verdicts.path} was graded with --format {line['format']}, not {format}. Delete it to "
                    "grade again."
                )
            done.add((line["problem"], line["sample"]))
        _grade(folder, settings, format, {problem["id"]: problem for problem in problems}, done)
        return write_metrics(folder, ks)


def _require_all_samples(folder: EvaluationFolder, problems: Sequence[Line], num_samples: int) -> None:
    expected = {(problem["id"], sample) for problem in problems for sample in range(num_samples)}
    counts = Counter((line["problem"], line["sample"]) for line in folder.samples)
    if odd := [key for key, count in counts.items() if count > 1 or key not in expected]:
        raise RecordError(
            f"{folder.samples.path}: sample {odd[0][1]} of problem {odd[0][0]!r} is there twice, or should not be. "
            "Was the file changed by hand?"
        )
    if len(counts) < len(expected):
        raise RecordError(
            f"{folder.path}: {len(counts):,} of {len(expected):,} samples are there. Run the same `gar eval generate` "
            "again for the rest."
        )


def _grade(
    folder: EvaluationFolder,
    settings: ScoreSettings,
    format: ResponseFormat,
    problems: Mapping[str, Line],
    done: set[tuple[str, int]],
) -> None:
    """Append a verdict for every sample that is not in `done`."""
    identity = folder.identity()
    limits: dict[str, Any] = {"num_workers": settings.num_workers, "timeout_seconds": settings.timeout_seconds}
    total = len(problems) * identity["sampling"]["num_samples"]
    bar = tqdm(total=total, initial=len(done), desc="grading", unit=" samples", disable=None)
    with bar, Verifier(format=format, **limits) as verifier, vote_pool(**limits) as pool:
        for window in _windows(folder, done):
            verdicts = sample_verdicts(verifier, window, problems)
            votes = _votes(pool, window, verdicts, problems)
            lines = [
                _line(sample, verdict, vote, format)
                for sample, verdict, vote in zip(window, verdicts, votes, strict=True)
                if (sample["problem"], sample["sample"]) not in done
            ]
            folder.verdicts.append(lines)
            bar.update(len(lines))


def _windows(folder: EvaluationFolder, done: set[tuple[str, int]]) -> Iterator[list[Line]]:
    """Samples of whole problems, many at a time. A problem that was only partly graded is graded again as a whole."""
    window: list[Line] = []
    for _, group in groupby(folder.samples, key=lambda sample: sample["problem"]):
        samples = list(group)
        if all((sample["problem"], sample["sample"]) in done for sample in samples):
            continue
        window += samples
        if len(window) >= _SAMPLES_PER_WINDOW:
            yield window
            window = []
    if window:
        yield window


def sample_verdicts(verifier: Verifier, window: Sequence[Line], problems: Mapping[str, Line]) -> list[Verdict]:
    """A verdict per sample: by letter for multiple choice, else by value.

    Args:
        verifier: Grades the answers, in its format.
        window: Samples as in `samples.jsonl`.
        problems: Problems as in `problems.jsonl`, by id.
    """
    texts = [sample["text"] for sample in window]
    asked = [problems[sample["problem"]] for sample in window]
    by_value = [i for i, problem in enumerate(asked) if not problem["num_choices"]]
    graded = iter(
        verifier.verify(
            [texts[i] for i in by_value],
            [asked[i]["answer"] for i in by_value],
            prefilled_think=[window[i]["prefilled_think"] for i in by_value],
            prompts=[prompt_text(asked[i]["prompt"]) for i in by_value],
        )
    )
    return [
        choice_verdict(
            text,
            problem["answer"],
            problem["num_choices"],
            format=verifier.format,
            prefilled_think=sample["prefilled_think"],
        )
        if problem["num_choices"]
        else next(graded)
        for text, sample, problem in zip(texts, window, asked, strict=True)
    ]


def choice_verdict(
    text: str, gold: str, num_choices: int, *, format: ResponseFormat, prefilled_think: bool = False
) -> Verdict:
    """The verdict on a response to a multiple-choice problem: OK or WRONG where its answer names one letter.

    Args:
        text: The response.
        gold: The right letter.
        num_choices: Number of letters, from A on.
        format: Where the answer is looked for, as in `gar.verify.parse_response`.
        prefilled_think: The prompt ends in the opening thinking tag.
    """
    parsed = parse_response(text, format=format, prefilled_think=prefilled_think)
    named = "" if parsed.answer is None else chosen_letters(parsed.answer)
    letter = named if len(named) == 1 and named in LETTERS[:num_choices] else None
    if letter is None:
        detail = "no answer found" if parsed.answer is None else "the answer names no single letter of a choice"
        status = Status.UNPARSED
    else:
        detail, status = "", Status.OK if letter == gold else Status.WRONG
    return Verdict(
        status=status,
        grade=float(status is Status.OK),
        verified=status is Status.OK,
        well_formatted=parsed.well_formatted,
        answer=letter or parsed.answer,
        detail="; ".join(part for part in (detail, parsed.reason) if part),
    )


def vote_pool(*, num_workers: int = 2, timeout_seconds: float = 5.0) -> WorkerPool:
    """Worker processes for `equal_answers`. Answers whose comparison reaches the time limit count as different."""
    return WorkerPool(grade_answer, num_workers=num_workers, timeout_seconds=timeout_seconds, warm_up=WARM_UP)


def equal_answers(pool: WorkerPool, answers: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Group the answers to each problem by value.

    math-verify's equality need not be transitive: an answer joins the first class whose first answer it equals.

    Args:
        pool: From `vote_pool`.
        answers: The answers to each problem, repeats allowed.

    Returns:
        For each problem, every answer with the first answer of equal value.
    """
    waiting = [list(dict.fromkeys(group)) for group in answers]
    classes: list[dict[str, str]] = [{} for _ in answers]
    # Each round completes one class of every problem, so that the pool gets many comparisons at a time.
    while any(waiting):
        pairs = [(i, other, group[0]) for i, group in enumerate(waiting) for other in group[1:]]
        for i, group in enumerate(waiting):
            classes[i] |= {answer: answer for answer in group[:1]}
        grades = [grade_exactly(other, first) for _, other, first in pairs]
        hard = [place for place, graded in enumerate(grades) if graded is None]
        for place, graded in zip(hard, pool.run([pairs[place][1:] for place in hard]), strict=True):
            grades[place] = graded
        for (i, other, first), graded in zip(pairs, grades, strict=True):
            if graded is not None and graded.status is Status.OK:
                classes[i][other] = first
        waiting = [[answer for answer in group if answer not in classes[i]] for i, group in enumerate(waiting)]
    return classes


def _votes(
    pool: WorkerPool, window: Sequence[Line], verdicts: Sequence[Verdict], problems: Mapping[str, Line]
) -> list[str | None]:
    """The vote of each sample: a right answer's is the gold answer. That of an incomparable answer is its text."""
    wrong: dict[str, list[str]] = {sample["problem"]: [] for sample in window}
    for sample, verdict in zip(window, verdicts, strict=True):
        if _may_vote(verdict) and verdict.status is Status.WRONG and not problems[sample["problem"]]["num_choices"]:
            wrong[sample["problem"]].append(verdict.answer or "")
    classes = dict(zip(wrong, equal_answers(pool, list(wrong.values())), strict=True))

    def vote(problem: str, verdict: Verdict) -> str | None:
        if not _may_vote(verdict):
            return None
        answer = verdict.answer or ""
        return problems[problem]["answer"] if verdict.status is Status.OK else classes[problem].get(answer, answer)

    return [vote(sample["problem"], verdict) for sample, verdict in zip(window, verdicts, strict=True)]


def _may_vote(verdict: Verdict) -> bool:
    return verdict.well_formatted and verdict.answer is not None


def _line(sample: Line, verdict: Verdict, vote: str | None, format: ResponseFormat) -> Line:
    return {
        "problem": sample["problem"],
        "sample": sample["sample"],
        "status": verdict.status.value,
        "correct": verdict.verified and verdict.well_formatted,
        "verified": verdict.verified,
        "well_formatted": verdict.well_formatted,
        "answer": verdict.answer,
        "vote": vote,
        "detail": verdict.detail,
        "num_tokens": len(sample["tokens"]),
        "truncated": sample["stop"] == "length",
        "format": format,
    }
