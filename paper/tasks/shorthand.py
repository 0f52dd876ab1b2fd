"""Experts who leave out what is obvious to them: the expert solutions of a chain task in three forms, and a mixture.

    full          [ 1 * 0 = 0 ; 0 - 3 = 7 ]     as the task has it
    half          [ 1 * 0 ; 0 - 3 = 7 ]         running values, no results
    shorthand     [ 1 * 0 ; - 3 = 7 ]           what is done, no value before the last
    mixture       every second problem full, the others in shorthand

The policy writes results, as before: only the experts change. `validation_problems` are for choosing settings.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from gar import Anchor, Problem
from gar.data import arithmetic
from paper.tasks.chains import TASKS, load_task

Form = Literal["full", "half", "shorthand", "mixture"]
FORMS: tuple[Form, ...] = get_args(Form)
NUM_VALIDATION, _SEED = 200, 33

_OPERATOR = r"(?:[-+*]|plus|minus|times)"
_RESULT = re.compile(r" (?:=|is) \d(?= (?:;|then) )")
_STEP = re.compile(rf"( (?:;|then) )(?:\d ({_OPERATOR})|({_OPERATOR}) \d)(?= \d)")


def shortened(text: str, form: Form) -> str:
    """A solution by the method stepwise or prefix, in either wording, in another form.

    Example:
        >>> shortened("<think> [ * 1 0 = 0 ; - 0 3 = 7 ] </think> <answer> 7 </answer>", "half")
        '<think> [ * 1 0 ; - 0 3 = 7 ] </think> <answer> 7 </answer>'
        >>> shortened("<think> [ 1 * 0 = 0 ; 0 - 3 = 7 ] </think> <answer> 7 </answer>", "shorthand")
        '<think> [ 1 * 0 ; - 3 = 7 ] </think> <answer> 7 </answer>'
    """
    if form == "full":
        return text
    half = _RESULT.sub("", text)
    return half if form == "half" else _STEP.sub(lambda step: step[1] + (step[2] or step[3]), half)


def with_form(problems: Sequence[Problem], form: Form) -> list[Problem]:
    """Problems with an expert who writes in this form. In the mixture, the problem's place decides."""
    if form == "mixture":
        return [with_form([one], "shorthand" if i % 2 else "full")[0] for i, one in enumerate(problems)]
    return [replace(one, anchors=(Anchor(text=shortened(one.anchors[0].text, form)),)) for one in problems]


def validation_problems(name: str) -> list[Problem]:
    """Problems of a chain task, as in its test split but in none of its splits: for choosing settings."""
    rng = random.Random(_SEED)
    taken = {str(problem.prompt) for split in arithmetic.NUM_PROBLEMS for problem in load_task(name, split)}
    drawn: list[Problem] = []
    while len(drawn) < NUM_VALIDATION:
        problem = TASKS[name].draw(rng, rng.choice(arithmetic.NUM_OPERATIONS["test"]))
        if str(problem.prompt) not in taken:
            taken.add(str(problem.prompt))
            drawn.append(replace(problem, id=f"validation-{len(drawn)}"))
    return drawn
