"""Answers made to hang, to eat memory, or to be right whatever the gold answer is: by the thousand, and by chance."""

import json
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gar.types import Status
from gar.verify import Verifier
from gar.verify.answers import grade_without_parser
from gar.verify.formats import parse_response
from tests.support.processes import SECONDS, completed

# Each would verify against some gold number if a part of it, a name for it or a set around it were enough.
HEDGES = [
    ", ".join(map(str, range(100))),
    "\\{" + ",".join(map(str, range(-9, 9))) + "\\}",
    r"1, 2, \ldots, 100",
    "7 or 8",
    r"7 \text{ or } 8",
    r"7 \text{ (or 8)}",
    "7/8",
    "7; 8",
    r"7 \lor 8",
    r"7 \ne 8",
    "6 < x < 9",
    "x = 7, x = 8",
    r"x = 7 \text{ or } x = 8",
    r"\pm 7",
    r"7.5 \pm 0.5",
    "[7, 8]",
    r"\mathbb{Z}",
    r"\mathbb{N}",
    r"(-\infty, \infty)",
    "n",
    "x",
    "x \\ge 7",
    r"\begin{cases} 7 \\ 8 \end{cases}",
    r"\begin{pmatrix} 7 & 8 \end{pmatrix}",
    r"\boxed{7} \boxed{8}",
    "the right answer",
    "True",
    r"\text{nan}",
    r"\infty",
    r"\frac{7}{0}",
]
# Seconds to for ever, or more memory than there is, if they were worked out.
ENDLESS = [
    "9^{9^{9^9}}",
    "((7!)!)!",
    "3!!!!!!!!!!!!",
    r"\binom{10^9}{10^8}",
    r"\prod_{i=1}^{100000000} i",
    r"\log_{7}{7^{7^{7^7}}}",
    "7+0\\cdot 9^{9^{9}}",
    "(x+1)^{99999}",
    "\\frac{1}{" * 25 + "7" + "}" * 25,
]
EVERY_OPERATION = r"7! + 7!! + 7^7 + \binom{7}{3} + \log_7{8} + \sqrt{7} + 7\cdot 8\cdot\frac{7}{8 \cdot 7} + x + 7 + 8"
"""A gold answer under which nothing counts as undone, so that all must be evaluated."""
CHEAP = [
    "\\frac{1}{" * 1_000 + "7" + "}" * 1_000,
    "{" * 1_000 + "7",
    "\x007",
    "7\x00",
    "\u202e71\u202c",
    "\u20667\u2069 8",
    "\ud8007",
    "7 8" * 700,
    "\\boxed{8}" * 200,
]


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(format="boxed", timeout_seconds=20.0, memory_bytes=512 * 1024**2) as verifier:
        yield verifier


@pytest.fixture(scope="module")
def hasty() -> Iterator[Verifier]:
    """For answers by chance, of which some are endless: no statement about any of them is needed."""
    with Verifier(format="boxed", timeout_seconds=0.4, memory_bytes=512 * 1024**2) as verifier:
        yield verifier


def boxed(answer: str) -> str:
    return rf"\boxed{{{answer}}}"


def test_verify_no_hedge_passes_and_endless_answers_end(verifier: Verifier) -> None:
    # The last of several boxes is the answer, and 7/8 is a number.
    right = {"7": [], "8": [r"\boxed{7} \boxed{8}"], r"\frac{7}{8}": ["7/8"]}
    for gold, expected in right.items():
        verdicts = verifier.verify(list(map(boxed, HEDGES)), [gold] * len(HEDGES))
        assert [answer for answer, verdict in zip(HEDGES, verdicts, strict=True) if verdict.verified] == expected
    verdicts = verifier.verify(list(map(boxed, ENDLESS)) * 2, ["7"] * len(ENDLESS) + [EVERY_OPERATION] * len(ENDLESS))
    assert {verdict.status for verdict in verdicts} <= {Status.WRONG, Status.UNPARSED}


MANY = """
import json, resource, sys, time
from gar.verify import Verifier, workers
workers.BRIEF_SECONDS = {limit}  # what is sound may take long on a busy machine
with Verifier(format="boxed", timeout_seconds={limit}, memory_bytes={memory_bytes}) as verifier:
    verifier.verify(["\\\\boxed{{x}}"], ["1"])  # else the size of this process would count as theirs
    answers = json.load(sys.stdin)
    answers += ["9" * 1_000_000 + str(k) for k in range({num} - len(answers))]
    golds = [{every_operation!r}] * {num_endless} + ["7"] * (len(answers) - {num_endless})
    started = time.monotonic()
    verdicts = verifier.verify([f"\\\\boxed{{{{{{answer}}}}}}" for answer in answers], golds)
    seconds = time.monotonic() - started
peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of the keeper, or of any worker
print(json.dumps([[verdict.status for verdict in verdicts], seconds, peak]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits and measures memory as Linux does")
@pytest.mark.parametrize(("num", "num_endless", "limit"), [(256, 2, 1.0), (2048, len(ENDLESS), 2.0)])
def test_verify_many_hostile_answers_at_once(num: int, num_endless: int, limit: float) -> None:
    memory_bytes = 256 * 1024**2
    num_ordinary = num // 32
    ordinary = {rf"\frac{{{14 * k}}}{{{2 * k}}}": Status.OK for k in range(1, num_ordinary)}
    ordinary |= {rf"\frac{{{15 * k}}}{{{2 * k}}}": Status.WRONG for k in range(1, num_ordinary)}
    endless = ENDLESS[:num_endless]
    # And some very long ones.
    given = [*endless, *ordinary, *(f"{answer}{k}" for k in range(num // 10) for answer in CHEAP)][: num - 16]
    script = MANY.format(
        memory_bytes=memory_bytes, every_operation=EVERY_OPERATION, num_endless=num_endless, num=num, limit=limit
    )
    program = completed([sys.executable, "-c", script], input=json.dumps(given), check=True)
    statuses, seconds, peak = json.loads(program.stdout)
    assert len(statuses) == num
    by_answer = dict(zip(given, statuses, strict=False))
    assert {answer: by_answer[answer] for answer in ordinary} == ordinary
    assert {answer for answer in given if by_answer[answer] == Status.OK} <= ordinary.keys()
    assert {by_answer[answer] for answer in endless} <= {Status.WRONG, Status.UNPARSED}
    assert {*statuses[len(given) :]} == {Status.UNPARSED}
    assert seconds < num_endless * limit + 300.0  # each one's own limit, and room for a busy machine
    assert peak < memory_bytes + 128 * 1024**2  # a worker's own, and what it shares with the keeper it is forked from


PARTS = st.sampled_from(
    [
        *"0123478787878xnABCDeiI+-*/^_=<>!,.;:|&()[]{}$%#~' \\\n\x00\u202e\u200b\u2212\u0667\ud800",
        *("7_", "^{9^{9}}", "10^{8}", r"\frac{7}{", r"\frac{", "}{", r"\sqrt{", r"\boxed{", r"\text{", r"\text{ or }"),
        *(" or ", " and ", "not ", r"\pm ", r"\mp ", r"\cup", r"\cap", r"\in", r"\{", r"\}", r"\left(", r"\right)"),
        *(r"\infty", r"\mathbb{Z}", r"\mathbb{R}", r"\sum_{i=1}^{8}", r"\int_0^8", r"\lim_{x\to 7}", r"\begin{cases}"),
        *(r"\end{cases}", r"\\", r"\ldots", r"\cdot", r"\times", r"\neq", r"\approx", r"\le", r"\%", r"^\circ", r"\pi"),
        *(r"\log", r"\sin", r"\gcd", r"\bmod ", r"\quad", "**", "the answer is ", "(7)", "(8)", "(C)", "x=7", "x=8"),
        *("7 dozen", "million", "half", "7,8", "7.0", "1e3", "__class__", "lambda:", "<answer>", "</think>"),
    ]
)
ANSWERS = st.lists(PARTS, max_size=9).map("".join)


@given(answers=st.lists(ANSWERS, min_size=4, max_size=4))
def test_verify_nothing_is_equal_to_two_numbers(hasty: Verifier, answers: list[str]) -> None:
    started = time.monotonic()
    golds = ("7", "8")
    texts = [boxed(answer) for answer in answers for _ in golds]
    verdicts = hasty.verify(texts, list(golds) * len(answers))
    assert time.monotonic() - started < 0.4 * len(texts) + SECONDS
    for i, answer in enumerate(answers):
        of_answer = verdicts[len(golds) * i : len(golds) * (i + 1)]
        assert sum(verdict.verified for verdict in of_answer) <= 1, ascii(answer)
        assert all(verdict.verified == (verdict.status == Status.OK) for verdict in of_answer)


@given(answer=st.one_of(ANSWERS, st.text(max_size=60)))
def test_grade_without_parser_never_names_two_choices_or_two_numbers(answer: str) -> None:
    for golds in ("ABCDEFGHIJ", [str(number) for number in range(30)]):
        graded = [grade_without_parser(answer, gold) for gold in golds]
        assert sum(outcome is not None and outcome.grade > 0 for outcome in graded) <= 1


@given(text=st.one_of(ANSWERS, st.text()))
def test_parse_response_reads_any_text(text: str) -> None:
    for response_format in ("think-answer", "boxed", "none"):
        parsed = parse_response(text, format=response_format)
        assert parsed.answer is None or parsed.answer.strip() in text
        assert bool(parsed.reason) != parsed.well_formatted
