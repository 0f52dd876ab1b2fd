"""The verifier beside TRL's accuracy reward, math-verify and the graders of verl, on the same pairs.

    python -m paper.analyses.graders FOLDER [--pairs 600] [--verl .venv-verl/bin/python]

The pairs are those of `unseen_answers.txt`, and of `answer_pairs.jsonl` and `answer_endings.jsonl` in FOLDER.
Every grader gets the whole response. Those of verl run in an interpreter that has verl (`make test-engines` makes one),
and are left out without one. Prints for each grader how many right answers it reads, how many wrong ones pass, and how
often it fails or takes longer than 10 seconds for one answer, which counts as not read.
"""

import argparse
import json
import logging
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import math_verify
import pandas as pd
from trl.rewards import accuracy_reward

from gar.evaluation import print_tables
from gar.verify import Verifier
from paper.analyses.unseen_answers import Pair, by_hand, labeled

Grades = list[bool | None]
"""Whether each pair passes. None where the grader failed."""
VERL = ("math_verify", "prime_math", "math_reward", "math_dapo")
_VERL_PROGRAM = """
import importlib, json, signal, sys
def stop(*_): raise TimeoutError
signal.signal(signal.SIGALRM, stop)
if __name__ == "__main__":
    grader = importlib.import_module("verl.utils.reward_score." + sys.argv[1])
    grades = []
    for response, gold in json.load(sys.stdin):
        signal.alarm(10)
        try:
            score = grader.compute_score(response, gold)
            score = score["score"] if isinstance(score, dict) else score[0] if isinstance(score, tuple) else score
            grades.append(float(score) == 1)
        except Exception:
            grades.append(None)
        signal.alarm(0)
    json.dump(grades, open(sys.argv[2], "w"))
"""


def by_us(pairs: Sequence[Pair]) -> Grades:
    """The verdicts of `Verifier`, with the format that a training of such responses has."""
    passed: Grades = [None] * len(pairs)
    for form in ("boxed", "none"):
        places = [place for place, pair in enumerate(pairs) if pair.format == form]
        with Verifier(format=form) as verifier:
            verdicts = verifier.verify(
                [pairs[place].response for place in places],
                [pairs[place].gold for place in places],
                prompts=[pairs[place].problem for place in places],
            )
        for place, verdict in zip(places, verdicts, strict=True):
            passed[place] = verdict.verified
    return passed


def by_math_verify(pair: Pair) -> bool:
    """math-verify, as its README uses it."""
    return math_verify.verify(math_verify.parse(_in_dollars(pair.gold)), math_verify.parse(pair.response))


def by_trl(pair: Pair) -> bool:
    """TRL's accuracy reward."""
    return accuracy_reward([[{"role": "assistant", "content": pair.response}]], [_in_dollars(pair.gold)]) == [1.0]


def by_verl(python: Path, name: str, pairs: Sequence[Pair], folder: Path) -> Grades:
    """A grader of verl, in its own interpreter."""
    program, grades = folder / "grade.py", folder / f"{name}.json"
    program.write_text(_VERL_PROGRAM)
    items = json.dumps([[pair.response, pair.gold.strip("$ ")] for pair in pairs])
    subprocess.run([python, program, name, grades], input=items, text=True, check=True, stdout=subprocess.DEVNULL)
    return json.loads(grades.read_text())


def each(grader: Callable[[Pair], bool], pairs: Sequence[Pair]) -> Grades:
    """The grades of a grader that may fail."""
    grades: Grades = []
    for pair in pairs:
        try:
            grades.append(bool(grader(pair)))
        except Exception:
            grades.append(None)
    return grades


def table(pairs: Sequence[Pair], graded: dict[str, Grades]) -> pd.DataFrame:
    """A row for each source and grader."""
    rows = []
    for source in sorted({pair.source for pair in pairs}):
        for name, grades in graded.items():
            own = [(pair.right, grade) for pair, grade in zip(pairs, grades, strict=True) if pair.source == source]
            num_right = sum(bool(right) for right, _ in own)
            read, passed = own.count((True, True)), own.count((False, True))
            failed = sum(grade is None for _, grade in own)
            rows.append([source, name, f"{read} of {num_right}", f"{passed} of {len(own) - num_right}", failed])
    return pd.DataFrame(rows, columns=["pairs", "grader", "right answers read", "wrong answers passed", "failed"])


def _in_dollars(gold: str) -> str:
    return gold if "$" in gold else f"${gold}$"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=600, help="at most, drawn by chance")
    parser.add_argument("--verl", type=Path, default=Path(".venv-verl/bin/python"), help="an interpreter with verl")
    parser.add_argument("--scratch", type=Path, default=Path("runs"), help="a folder for the grades of verl's graders")
    arguments = parser.parse_args()
    for name in ("math_verify", "latex2sympy2_extended", "trl"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    pairs = [*by_hand(), *labeled(arguments.folder)]
    pairs = random.Random(0).sample(pairs, min(arguments.pairs, len(pairs)))
    graded = {"gar": by_us(pairs), "math-verify": each(by_math_verify, pairs), "TRL": each(by_trl, pairs)}
    if arguments.verl.exists():
        arguments.scratch.mkdir(exist_ok=True)
        for name in VERL:
            graded[f"verl, {name}"] = by_verl(arguments.verl, name, pairs, arguments.scratch)
    print_tables({f"{len(pairs)} pairs": table(pairs, graded)}, [])


if __name__ == "__main__":
    main()
