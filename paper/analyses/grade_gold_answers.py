"""Gold answers of IMO-AnswerBench graded against themselves, and against wrong variants of themselves.

    python -m paper.analyses.grade_gold_answers imo_answerbench_v2.csv

Each of the 400 gold answers is given as an answer to its own problem in three forms: unchanged, in other notation
(without dollars, `\\dfrac` for `\\frac`, other spaces), and with its last number n written as `\\frac{2n}{2}`, which
only a parser can simplify. All should verify. Five to nine wrong variants of it should not. Prints how many verified,
and every answer with an unexpected verdict. docs/grading.md has the numbers.
"""

import argparse
import csv
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gar import Status, Verdict
from gar.evaluation import print_tables
from gar.verify import Verifier

KNOWN_BAD = {
    "algebra-036": "the cell holds the category, 'Algebra'",
    "geometry-004": "a date that a spreadsheet turned into a number",
    "geometry-096": "a dollar sign without its partner",
}
FOREIGN = "7919"
"""A number that no gold answer holds."""

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MAX_DETAIL = 60


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One answer to one problem.

    Example: Attempt(problem="algebra-001", gold="3", kind="plus 1", answer="3+1")
    """

    problem: str
    gold: str
    kind: str
    answer: str


def read_golds(path: Path) -> dict[str, str]:
    """Gold answers by problem, as `algebra-001`."""
    with path.open(newline="") as file:
        return {row["Problem ID"].removeprefix("imo-bench-"): row["Short Answer"] for row in csv.DictReader(file)}


def right_forms(gold: str) -> dict[str, str]:
    """The gold answer, and the same in other forms."""
    plain = without_dollars(gold)
    other = plain.replace(r"\frac", r"\dfrac").replace(",", ", ").replace("+", " + ")
    other = other.replace(r"\left", "").replace(r"\right", "")
    forms = {"as it stands": gold, "other notation": f"{other}.0" if other.isdigit() else other}
    if numbers := list(_NUMBER.finditer(plain)):
        last = numbers[-1]
        fraction = rf"\frac{{{2 * number(last[0])}}}{{2}}"
        before = plain[: last.start()]
        forms["last number as a fraction"] = (
            before + (f"{{{fraction}}}" if before.endswith(("^", "_")) else fraction) + plain[last.end() :]
        )
    return forms


def wrong_forms(gold: str, gold_of_another: str) -> dict[str, str]:
    """At least five variants that are not equal to the gold answer."""
    plain = without_dollars(gold)
    forms = {
        "plus 1": f"{plain}+1",
        "one more in the list": f"{plain}, {FOREIGN}",
        "or another": rf"{plain}\text{{ or }}{FOREIGN}",
        "answer of the next problem": without_dollars(gold_of_another),
        "all integers up to 60": ", ".join(map(str, range(1, 61))),
    }
    if numbers := list(_NUMBER.finditer(plain)):
        first, last = numbers[0], numbers[-1]
        forms["last number + 1"] = plain[: last.start()] + f"{number(last[0]) + 1}" + plain[last.end() :]
        forms["first number + 10"] = plain[: first.start()] + f"{number(first[0]) + 10}" + plain[first.end() :]
        if last[0] != plain.lstrip("-"):
            forms["nothing but its last number"] = last[0]
    if plain.strip("0"):
        forms["negated"] = f"-({plain})"
    return {kind: answer for kind, answer in forms.items() if answer.split() != plain.split()}


def without_dollars(gold: str) -> str:
    """The answer without its full stop and enclosing dollars."""
    text = gold.strip().rstrip(".").strip()
    return text[1:-1] if text.startswith("$") and text.endswith("$") and text.count("$") == 2 else text


def number(text: str) -> int | float:
    """The number, as an int if the text is one."""
    return int(text) if text.isdigit() else float(text)


def attempts(golds: Mapping[str, str]) -> tuple[list[Attempt], list[Attempt]]:
    """All right and all wrong answers."""
    following = dict(zip(golds, [*list(golds)[1:], next(iter(golds))], strict=True))
    right, wrong = [], []
    for problem, gold in golds.items():
        another = golds[following[problem]]
        for into, forms in ((right, right_forms(gold)), (wrong, wrong_forms(gold, another))):
            into += [Attempt(problem=problem, gold=gold, kind=kind, answer=text) for kind, text in forms.items()]
    return right, wrong


def grade(verifier: Verifier, given: list[Attempt]) -> list[Verdict]:
    """Each answer in a box, as a model gives it."""
    return verifier.verify([rf"\boxed{{{attempt.answer}}}" for attempt in given], [attempt.gold for attempt in given])


def status_table(given: list[Attempt], verdicts: list[Verdict]) -> pd.DataFrame:
    """The statuses of the answers of each kind."""
    counts: defaultdict[str, Counter[Status]] = defaultdict(Counter)
    for attempt, verdict in zip(given, verdicts, strict=True):
        counts[attempt.kind][verdict.status] += 1
    rows = [[kind, *(of_kind[status] for status in Status)] for kind, of_kind in counts.items()]
    return pd.DataFrame(rows, columns=["answer", *Status])


def odd_lines(given: list[Attempt], verdicts: list[Verdict], expected: set[Status]) -> list[str]:
    """The answers with an unexpected status, a line for each problem and status."""
    odd: defaultdict[tuple[str, str, Status], list[str]] = defaultdict(list)
    for attempt, verdict in zip(given, verdicts, strict=True):
        if verdict.status not in expected:
            odd[attempt.problem, " ".join(attempt.gold.split()), verdict.status].append(attempt.kind)
    return [
        f"{problem}  {status}  {gold[:_MAX_DETAIL]!r}: {', '.join(kinds)}"
        for (problem, gold, status), kinds in odd.items()
    ]


def main() -> None:
    """Print both tables, and the answers with an unexpected status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, help="imo_answerbench_v2.csv")
    parser.add_argument("--timeout-seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    golds = read_golds(arguments.csv)
    right, wrong = attempts(golds)
    with Verifier(format="boxed", timeout_seconds=arguments.timeout_seconds) as verifier:
        for title, given, expected in (
            (f"{len(golds)} gold answers, in forms that are right", right, {Status.OK}),
            (f"{len(golds)} gold answers, in forms that are wrong", wrong, {Status.WRONG, Status.UNPARSED}),
        ):
            verdicts = grade(verifier, given)
            print_tables({title: status_table(given, verdicts)}, odd_lines(given, verdicts, expected))
    print_tables({}, [f"known bad: {problem}  {golds.get(problem, '')!r}: {why}" for problem, why in KNOWN_BAD.items()])


if __name__ == "__main__":
    main()
