"""Responses and gold answers in, verdicts out."""

import pickle
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gar.errors import ConfigError, DataError, expect_members
from gar.plugins import search_current_folder
from gar.types import Status, Tags, Verdict
from gar.verify.answers import WARM_UP, grade_answer, grade_without_parser
from gar.verify.formats import DEFAULT_TAGS, ResponseFormat, parse_response
from gar.verify.grades import Graded
from gar.verify.keeper import Setup
from gar.verify.workers import WorkerPool

if TYPE_CHECKING:
    from gar.settings import VerifySettings

Grader = Callable[[str, str], bool | float]
NO_ANSWER = Graded(status=Status.UNPARSED, detail="no answer found")


class Verifier:
    """Checks the format and the answer of responses. Close it when done, or use it as a context manager.

    Args:
        format: "think-answer", "boxed" or "none", see `parse_response`.
        tags: The markers of the response format.
        custom: A grader that replaces the comparison of answers: "package.module:function" or a function that can be
            pickled. A worker process calls it with the WHOLE text of a response and the gold answer. It returns True or
            False, or a grade in [0, 1], of which only 1 counts as verified.
        num_workers: Worker processes. They start when an answer first needs one. Plain numbers never do.
        timeout_seconds: Wall-clock limit for each answer, after which its worker is killed.
        memory_bytes: Memory limit of each worker.

    Raises:
        ConfigError: A setting is out of range, or the grader cannot be used.
    """

    def __init__(
        self,
        *,
        format: ResponseFormat = "think-answer",
        tags: Tags = DEFAULT_TAGS,
        custom: Grader | str | None = None,
        num_workers: int = 2,
        timeout_seconds: float = 5.0,
        memory_bytes: int = 2 * 1024**3,
    ) -> None:
        from gar.settings import VerifySettings  # pydantic is not for the workers, which import this package

        settings = VerifySettings(
            format=format,
            tags=tags,
            num_workers=num_workers,
            timeout_seconds=timeout_seconds,
            memory_bytes=memory_bytes,
        )
        self.format: ResponseFormat = format
        self.tags = settings.tags
        self._custom = custom is not None
        setup = Setup(
            function=pickle.dumps(grade_answer if custom is None else custom_grader(custom)),
            warm_up=WARM_UP if custom is None else (),
            timeout_seconds=timeout_seconds,
            memory_bytes=memory_bytes,
        )
        self._pool = WorkerPool(setup, num_workers)

    @classmethod
    def from_settings(cls, settings: "VerifySettings") -> "Verifier":
        """The verifier of a run.

        Raises:
            ConfigError: The grader cannot be used.
        """
        return cls(
            tags=settings.tags,
            custom=settings.verifier,
            **settings.model_dump(include={"format", "num_workers", "timeout_seconds", "memory_bytes"}),
        )

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def verify(
        self,
        responses: Sequence[str],
        golds: Sequence[str],
        *,
        prefilled_think: Sequence[bool] | bool = False,
        prompts: Sequence[str] | None = None,
    ) -> list[Verdict]:
        """Give one verdict per response, in order. Callable from any thread.

        Args:
            responses: Texts without the prompt and without trailing special tokens.
            golds: The right answer for each response.
            prefilled_think: Whether the prompt ends in the opening thinking tag, for each response or for all.
            prompts: The problem of each response, as text. An expression copied from it is wrong, unless it is the gold
                answer as written.

        Returns:
            Verdicts with these statuses: OK or WRONG for an answer that was compared. UNPARSED if there is no answer,
            or it cannot be read as exactly one value. TIMEOUT for an answer that reached the time limit, or that was
            not checked after too many such answers. ERROR if a worker died, the comparison failed, or a grader returned
            no grade. The last three have grade 0 and are not verified, even if well formatted.

        Raises:
            DataError: The sequences differ in length, or an item is not a text.
            WorkerError: The worker processes cannot be started.
        """
        expect_members(responses, str, "responses", "a text", error=DataError)
        expect_members(golds, str, "golds", "a text", error=DataError)
        prefilled = [prefilled_think] * len(responses) if isinstance(prefilled_think, bool) else prefilled_think
        texts = [""] * len(responses) if prompts is None else prompts
        if not len(responses) == len(golds) == len(prefilled) == len(texts):
            raise DataError(
                f"got {len(responses)} responses, {len(golds)} golds and {len(prefilled)} prefilled_think, "
                + ("" if prompts is None else f"{len(texts)} prompts, ")
                + "expected equal lengths. Was each gold answer repeated for every response of its group?"
            )
        parsed = [
            parse_response(text, format=self.format, tags=self.tags, prefilled_think=inside)
            for text, inside in zip(responses, prefilled, strict=True)
        ]
        if self.format == "none":  # a response that is the gold answer and nothing else, perhaps in several lines
            parsed = [
                replace(form, answer=gold) if text.split() == gold.split() else form
                for form, text, gold in zip(parsed, responses, golds, strict=True)
            ]
        if self._custom:
            graded = self._pool.run(list(zip(responses, golds, strict=True)))
        else:
            graded = self.grade_answers([form.answer for form in parsed], golds, texts)
        return [
            Verdict(
                status=outcome.status,
                grade=outcome.grade,
                verified=outcome.status is Status.OK,
                well_formatted=form.well_formatted,
                answer=form.answer,
                detail="; ".join(text for text in (outcome.detail, form.reason) if text),
            )
            for form, outcome in zip(parsed, graded, strict=True)
        ]

    def grade_answers(
        self, answers: Sequence[str | None], golds: Sequence[str], prompts: Sequence[str]
    ) -> list[Graded]:
        """Compare extracted answers with gold answers. Equal pairs are compared once. Only the workers parse."""
        items = [(answer or "", gold, prompt) for answer, gold, prompt in zip(answers, golds, prompts, strict=True)]
        read = {item: grade_without_parser(*item) if item[0] else NO_ANSWER for item in dict.fromkeys(items)}
        graded = {item: outcome for item, outcome in read.items() if outcome}
        unclear = [item for item in read if item not in graded]
        graded.update(zip(unclear, self._pool.run(unclear), strict=True))
        return [graded[item] for item in items]


def custom_grader(grader: Grader | str) -> Callable[[str, str], Graded]:
    """A user's grader as worker processes call it. A `ConfigError` gives the reason if they cannot."""
    function = _imported(grader) if isinstance(grader, str) else grader
    if not callable(function):
        raise ConfigError(f"the verifier {grader!r} is of type {type(function).__name__}, expected a function")
    try:
        # Workers import the function by name. The running script is not a module they can import.
        if b"__main__" in pickle.dumps(function):
            why = "it is defined in the running script or notebook, which worker processes do not import"
        else:
            return partial(_grade_by, function)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    raise ConfigError(
        f"the verifier {grader!r} cannot be sent to worker processes: {why}. "
        "Define it at the top level of a module that can be imported, not as a lambda or an inner function."
    )


def _grade_by(function: Grader, text: str, gold: str) -> Graded:
    """Call a user's grader. A grade of 1 or True has status OK, a lower one WRONG, anything else ERROR."""
    grade: Any = function(text, gold)
    if getattr(grade, "ndim", None) == 0:  # a scalar of NumPy or torch
        grade = grade.item()
    if isinstance(grade, int | float) and 0 <= grade <= 1:
        return Graded(status=Status.OK if grade == 1 else Status.WRONG, grade=float(grade))
    got = repr(grade) if isinstance(grade, int | float) else type(grade).__name__
    return Graded(status=Status.ERROR, detail=f"the grader returned {got}, expected a bool or a number in [0, 1]")


def _imported(name: str) -> Grader:
    search_current_folder()
    try:
        return pkgutil.resolve_name(name)
    except Exception as error:
        raise ConfigError(
            f"the verifier {name!r} cannot be imported, {type(error).__name__}: {error}. Expected "
            "'package.module:function', from an installed package or from a file in the current folder (without .py)"
        ) from error
