"""A generated task for a real language model: short English word problems of two or three steps.

    Ana has 4 bags with 6 pens in each. Ana gives away 5 pens. Then Ana sells all the pens for 3 dollars each.
    How many dollars does Ana get?

A prompt ends in a line break: byte-pair tokenizers would merge `?` with the `<` of a response's first tag.

Seven *methods* reach the answer, each in two *wordings*, with units and without:

    steps, units        4 * 6 = 24 pens. 24 - 5 = 19 pens. 19 * 3 = 57 dollars.
    steps, bare         4 * 6 = 24. 24 - 5 = 19. 19 * 3 = 57.
    expression, units   (4 * 6 - 5) * 3 = 57 dollars.
    expression, bare    (4 * 6 - 5) * 3 = 57.
    reduction, units    (4 * 6 - 5) * 3 = (24 - 5) * 3 = 19 * 3 = 57 dollars.
    reduction, bare     (4 * 6 - 5) * 3 = (24 - 5) * 3 = 19 * 3 = 57.
    shorthand, units    4 * 6. - 5. * 3 = 57 dollars.
    shorthand, bare     4 * 6. - 5. * 3 = 57.
    skipping, units     24 - 5 = 19 pens. 19 * 3 = 57 dollars.
    running, units      4 * 6 = 24 - 5 = 19 * 3 = 57 dollars.
    unbracketed, units  4 * 6 - 5 * 3 = 24 - 5 * 3 = 19 * 3 = 57 dollars.

Everything is drawn with a fixed seed: the same version of this file gives the same problems everywhere.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast, get_args

from gar import Anchor, DataError, Problem

WORD_PROBLEMS = "word-problems"
"""The name of the task as `data.source`."""

Method = Literal["steps", "expression", "reduction", "shorthand", "skipping", "running", "unbracketed"]
Wording = Literal["units", "bare"]
METHODS: tuple[Method, ...] = get_args(Method)
WORDINGS: tuple[Wording, ...] = get_args(Wording)

NUM_PROBLEMS = {"train": 2000, "test": 200, "harder": 200, "validation": 200}
NUM_STEPS = {"train": (2, 3), "test": (2, 3), "harder": (4,), "validation": (2, 3)}
SEED = 19

_NAMES = ("Ana", "Ben", "Cara", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivan", "Jane", "Kofi", "Lea", "Mia", "Noah")
_THINGS = ("apple", "pen", "book", "shell", "stamp", "card", "coin", "marble", "flower", "sticker", "cookie", "button")
_HOLDERS = ("box", "bag", "basket", "jar")
_GAINS = ("{name} buys {n} more {things}.", "{name} finds {n} {things}.", "A friend gives {name} {n} more {things}.")
_LOSSES = ("{name} gives away {n} {things}.", "{name} loses {n} {things}.", "Then {n} {things} break.")
_LARGEST = 99


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on the value so far, and the unit of its result. Units are plural."""

    operator: str
    number: int
    unit: str


@dataclass(frozen=True, slots=True)
class Story:
    """A word problem with its solution: a first number, and the steps from it to the answer."""

    text: str
    first: int
    steps: tuple[Step, ...]

    def values(self) -> tuple[int, ...]:
        """The value after each step. The last one is the answer.

        Example:
            >>> Story("", 4, (Step("*", 6, "pens"), Step("-", 5, "pens"))).values()
            (24, 19)
        """
        values = [self.first]
        for step in self.steps:
            values.append(_apply(values[-1], step))
        return tuple(values[1:])


def load_word_problems(split: str, expert: str | None = None) -> list[Problem]:
    """Load the problems of one split. They are always the same, and no problem is in two splits.

    Args:
        split: `train` (2,000 problems), `validation` and `test` (200 each) have 2 or 3 steps, `harder` (200) has 4.
        expert: The method of the expert solutions. None: `steps`.

    Returns:
        Problems `train-0`, `train-1`, ... with one anchor each. Its random wording does not depend on the method.

    Raises:
        DataError: There is no such split, or no such method.
    """
    method = expert or METHODS[0]
    for name, value, known in (("split", split, NUM_PROBLEMS), ("expert", method, METHODS)):
        if value not in known:
            raise DataError(f"{WORD_PROBLEMS} has no {name} {value!r}, expected one of {', '.join(known)}.")
    return [
        Problem(
            id=f"{split}-{index}",
            prompt=story.text,
            answer=str(story.values()[-1]),
            anchors=(Anchor(text=write_solution(story, cast(Method, method), wording)),),
            source=WORD_PROBLEMS,
        )
        for index, (story, wording) in enumerate(load_stories()[split])
    ]


@cache
def load_stories() -> dict[str, list[tuple[Story, Wording]]]:
    """The stories of every split, with the wording of their expert solutions."""
    rng = random.Random(SEED)
    seen: set[str] = set()
    stories: dict[str, list[tuple[Story, Wording]]] = {split: [] for split in NUM_PROBLEMS}
    for split, drawn in stories.items():
        while len(drawn) < NUM_PROBLEMS[split]:
            story = draw_story(rng, rng.choice(NUM_STEPS[split]))
            if story.text not in seen:
                seen.add(story.text)
                drawn.append((story, rng.choice(WORDINGS)))
    return stories


def draw_story(rng: random.Random, num_steps: int) -> Story:
    """Draw a problem of at least two steps with all values between 2 and 99."""
    while True:
        story = _draw(rng, num_steps)
        if all(2 <= value <= _LARGEST for value in story.values()):
            return story


def _draw(rng: random.Random, num_steps: int) -> Story:
    name, things = rng.choice(_NAMES), f"{rng.choice(_THINGS)}s"
    grouped = rng.random() < 0.5
    sold = rng.random() < 0.5 and (num_steps > 2 or not grouped)
    first, steps, sentences = rng.randint(3, 40), [], []
    if grouped:
        first, size, holder = rng.randint(2, 9), rng.randint(2, 9), rng.choice(_HOLDERS)
        holders = "boxes" if holder == "box" else f"{holder}s"
        sentences.append(f"{name} has {first} {holders} with {size} {things} in each.")
        steps.append(Step("*", size, things))
    else:
        sentences.append(f"{name} has {first} {things}.")
    while len(steps) < num_steps - sold:
        gains, number = rng.random() < 0.5, rng.randint(2, 20)
        sentences.append(rng.choice(_GAINS if gains else _LOSSES).format(name=name, n=number, things=things))
        steps.append(Step("+" if gains else "-", number, things))
    question = f"How many {things} does {name} have now?"
    if sold:
        price = rng.randint(2, 9)
        sentences.append(f"Then {name} sells all the {things} for {price} dollars each.")
        steps.append(Step("*", price, "dollars"))
        question = f"How many dollars does {name} get?"
    return Story(" ".join([*sentences, question]) + "\n", first, tuple(steps))


def write_solution(story: Story, method: Method, wording: Wording) -> str:
    """Write a full response with tags, by one of the methods.

    Example:
        >>> story = Story("", 4, (Step("*", 6, "pens"), Step("-", 5, "pens"), Step("*", 3, "dollars")))
        >>> write_solution(story, "expression", "units")
        '<think>(4 * 6 - 5) * 3 = 57 dollars.</think><answer>57</answer>'
    """
    values = (story.first, *story.values())
    lines = [
        (f"{left} {step.operator} {step.number}", value, step.unit)
        for left, step, value in zip(values, story.steps, values[1:], strict=False)
    ]
    if method not in ("steps", "skipping"):
        lines = [(_left_side(story, values, method), *lines[-1][1:])]
    elif method == "skipping":
        lines = lines[1:]
    endings = ((left, f"{value} {unit}" if wording == "units" else value) for left, value, unit in lines)
    working = " ".join(f"{left} = {ending}." for left, ending in endings)
    return f"<think>{working}</think><answer>{values[-1]}</answer>"


def method_of(response: str, prompt: str) -> Method | None:
    """The method of a response, by the number of operations in each part of its working. Values do not count.

    `unbracketed` counts as `reduction`: most of their texts are the same.

    Example:
        >>> method_of("<think>24 - 5 = 17 pens. 17 * 3 = 51.</think><answer>51</answer>", "Ana has 4 bags of 6, 5, 3")
        'skipping'
    """
    story = Story("", 1, (Step("+", 1, ""),) * (len(re.findall(r"\d+", prompt)) - 1))
    for method in METHODS:
        if _shape(write_solution(story, method, "bare")) == _shape(response):
            return method
    return None


def _shape(response: str) -> list[list[int]]:
    """The number of operations on each side of an `=`, in each sentence of the working."""
    working = response.removeprefix("<think>").partition("</think>")[0]
    sentences = [sentence for sentence in working.split(".") if sentence.strip()]
    return [[len(re.findall(r"[-+*]", side)) for side in sentence.split("=")] for sentence in sentences]


def _left_side(story: Story, values: Sequence[int], method: Method) -> str:
    """What a solution in one sentence has before its last `=`."""
    if method == "shorthand":
        return f"{story.first} " + ". ".join(f"{step.operator} {step.number}" for step in story.steps)
    if method == "running":
        operations = zip(values, story.steps, strict=False)
        return " = ".join(f"{value} {step.operator} {step.number}" for value, step in operations)
    stages = [_expression(value, story.steps[done:]) for done, value in enumerate(values[:-1])]
    if method == "expression":
        return stages[0]
    text = " = ".join(stages)
    return text.translate({ord("("): None, ord(")"): None}) if method == "unbracketed" else text


def _expression(first: int, steps: Sequence[Step]) -> str:
    text, is_sum = str(first), False
    for step in steps:
        multiplies = step.operator == "*"
        text = f"({text})" if multiplies and is_sum else text
        text, is_sum = f"{text} {step.operator} {step.number}", not multiplies
    return text


def _apply(value: int, step: Step) -> int:
    return {"+": value + step.number, "-": value - step.number, "*": value * step.number}[step.operator]
