"""Grade responses: by letter for multiple choice, else by value. Needs no model."""

from collections.abc import Sequence

from gar.data.problems import prompt_text
from gar.evaluation.results import Group
from gar.rollouts.generate import Response
from gar.types import Problem, ResponseFormat, ResponseVerifier, Status, Verdict
from gar.verify import parse_response
from gar.verify.choices import LETTERS, chosen_letters


def graded_groups(
    verifier: ResponseVerifier,
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
    *,
    prefilled: Sequence[bool],
    num_choices: Sequence[int] | None = None,
) -> tuple[Group, ...]:
    """A group per problem, with a verdict on each of its responses.

    A problem with `num_choices` letters is graded by letter. One with 0, as for None, is graded by value.
    """
    counts = num_choices or [0] * len(problems)
    rows = [
        (response.text, problem, flag)
        for problem, group, flag, count in zip(problems, responses, prefilled, counts, strict=True)
        for response in group
        if not count
    ]
    by_value = iter(
        verifier.verify(
            [text for text, _, _ in rows],
            [problem.answer for _, problem, _ in rows],
            prefilled_think=[flag for _, _, flag in rows],
            prompts=[prompt_text(problem.prompt) for _, problem, _ in rows],
        )
    )

    def verdict(response: Response, problem: Problem, flag: bool, count: int) -> Verdict:
        if not count:
            return next(by_value)
        return choice_verdict(response.text, problem.answer, count, format=verifier.format, prefilled_think=flag)

    return tuple(
        Group(
            problem=problem,
            responses=tuple(group),
            verdicts=tuple(verdict(response, problem, flag, count) for response in group),
            prefilled=flag,
        )
        for problem, group, flag, count in zip(problems, responses, prefilled, counts, strict=True)
    )


def choice_verdict(
    text: str, gold: str, num_choices: int, *, format: ResponseFormat, prefilled_think: bool = False
) -> Verdict:
    """The verdict on a response to a multiple-choice problem: OK or WRONG if its answer names one letter.

    `num_choices` letters count, from A on. `format` is as in `gar.verify.parse_response`.
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
