"""Answers that the rules of `gar.verify` were not written for: by hand, and made from the gold answers of data sets.

`unseen_answers.txt` has those by hand. Of each gold answer of the data there are near misses by one edit (a sign,
digit, bracket, letter, case, order, exponent, a word before or after). Solutions of GSM8K are read without their last
line, with their own gold answer and with the next number in its place.

    python -m paper.analyses.unseen_answers FOLDER [--near-misses 60]

prints the near misses that pass, for a person to read: each must be equal to its gold answer.
"""

import argparse
import csv
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gar.verify import grade_answer, parse_response

HAND_WRITTEN = Path(__file__).with_name("unseen_answers.txt")
_EDITS = (
    "", "-", "+", "0", "1", "7", "(", ")", "[", "]", "{", "}", "|", "!", "^", "_", "^2", "/", "*", ",", ";", ".", " ",
    "=", "x", "n", "e", "i", "R", "A", r"\pi ", r"\sqrt", "%", "'",
)  # fmt: skip
_WORDS = ("not ", "about ", "half of ", "more than ", "minus ", "no ", "x = ", "n > ")
_WORDS_AFTER = (" or 3", " dozen", " more", " times", "!", "?", " km", " and 2", "...", " at most", ", not", " mod 7")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    r"""A whole response, a gold answer, and whether it is right. None: nobody judged it.

    Example: Pair(source="by hand", format="boxed", gold="7", response=r"So it is $\boxed{7}$.", right=True)
    """

    source: str
    format: str
    gold: str
    response: str
    right: bool | None
    problem: str = ""


def by_hand() -> Iterator[Pair]:
    """The answers of `unseen_answers.txt`."""
    for line in HAND_WRITTEN.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        kind, gold, *sides = line.split("\t")
        for side, right in zip(sides, (True, False), strict=True):
            for answer in side.split(" | "):
                response = boxed(answer) if kind == "boxed" else answer.replace("⏎", "\n")
                form = "boxed" if kind == "boxed" else "none"
                yield Pair(source="by hand", format=form, gold=gold, response=response, right=right)


def labeled(folder: Path) -> Iterator[Pair]:
    """The pairs of `answer_pairs.jsonl` and `answer_endings.jsonl`."""
    for row in _lines(folder / "answer_pairs.jsonl"):
        in_box = row["kind"] == "boxed"
        yield Pair(
            source="answer_pairs",
            format="boxed" if in_box else "none",
            gold=row["gold"],
            response=boxed(row["answer"]) if in_box else row["answer"],
            right=row["right"],
            problem=row["prompt"] or "",
        )
    for row in _lines(folder / "answer_endings.jsonl"):
        yield Pair(
            source="answer_endings",
            format="none",
            gold=row["gold"],
            response=row["response"],
            right=row["right"],
            problem=row["question"],
        )


def solutions(folder: Path) -> Iterator[Pair]:
    """Solutions of GSM8K by experts, without the line `####`, and by models, each also with another gold answer."""
    for row in _lines(folder / "gsm8k_test.jsonl"):
        text, _, gold = row["answer"].rpartition("####")
        for number, right in ((gold.strip(), True), (_next(gold), False)):
            yield Pair(
                source="GSM8K, experts",
                format="none",
                gold=number,
                response=text.strip(),
                right=right,
                problem=row["question"],
            )
    for row in _lines(folder / "gsm8k_model_solutions_300.jsonl"):
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            given = row[model]
            yield Pair(
                source="GSM8K, models",
                format="none",
                gold=gold,
                response=given["solution"],
                right=bool(given["is_correct"]),
                problem=row["question"],
            )


def near_misses(folder: Path, each: int, seed: str = "near misses") -> Iterator[Pair]:
    """Of each gold answer a number of seeded edits, which are nearly all wrong."""
    rng = random.Random(seed)
    for gold in dict.fromkeys(_golds(folder)):
        plain = gold.strip().removesuffix(".").strip("$ ")
        for answer in dict.fromkeys(_edited(plain, rng) for _ in range(each)):
            if answer.split() != plain.split():
                yield Pair(source="near misses", format="boxed", gold=gold, response=boxed(answer), right=None)


def boxed(answer: str) -> str:
    """A sentence that ends in the box of an answer."""
    return rf"So it is $\boxed{{{answer}}}$."


def _edited(text: str, rng: random.Random) -> str:
    place, kind = rng.randrange(len(text)), rng.randrange(6)
    if kind == 0:
        return text[:place] + rng.choice(_EDITS) + text[place:]
    if kind == 1:
        return text[:place] + rng.choice(_EDITS) + text[place + 1 :]
    if kind == 2:
        return text[:place] + text[place].swapcase() + text[place + 1 :]
    if kind == 3:
        return rng.choice(_WORDS) + text if rng.random() < 0.5 else text + rng.choice(_WORDS_AFTER)
    pieces = re.findall(r"\\[A-Za-z]+|[0-9.]+|.", text)
    first, second = sorted(rng.randrange(len(pieces)) for _ in range(2))
    pieces[first], pieces[second] = pieces[second], pieces[first]
    return "".join(pieces)


def _golds(folder: Path) -> Iterator[str]:
    with (folder / "imo_answerbench_v2.csv").open(newline="") as file:
        yield from (row["Short Answer"] for row in csv.DictReader(file))
    for name in ("answer_pairs.jsonl", "answer_endings.jsonl"):
        yield from (row["gold"] for row in _lines(folder / name))
    yield from (pair.gold for pair in by_hand())
    yield from (row["answer"].rpartition("####")[2] for row in _lines(folder / "gsm8k_test.jsonl")[:150])


def _next(number: str) -> str:
    return str(int(float(number.replace(",", ""))) + 1)


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Print the near misses that pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--near-misses", type=int, default=60, help="of each gold answer")
    arguments = parser.parse_args()
    pairs = list(near_misses(arguments.folder, arguments.near_misses))
    answers = [parse_response(pair.response, format="boxed").answer for pair in pairs]
    passed = [
        (pair.gold, answer)
        for pair, answer in zip(pairs, answers, strict=True)
        if answer and grade_answer(answer, pair.gold).grade == 1
    ]
    for gold, answer in passed:
        print(repr(gold), answer, sep="\t")
    print(f"{len(passed)} of {len(pairs)} pass")


if __name__ == "__main__":
    main()
