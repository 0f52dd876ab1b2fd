"""Find the choice that an answer to a multiple-choice question names: letters A to J, as in MMLU-Pro.

An answer must name one choice beyond doubt. An answer that names two choices gets neither.
"""

import re

from gar.verify.latex import plain_latex
from gar.verify.quantities import without_marks
from gar.verify.words import DOUBTS

_DOUBTS = "|".join(map(re.escape, DOUBTS | {"no", "hope", "or"}))
LETTERS = "ABCDEFGHIJ"
"""Names of the choices, in their order."""
_LETTER = r"[({\[]*(?P<letter>[A-Ja-j])[)}\]]*"  # C  (C)  [C]  {C}
_GOLD = re.compile(_LETTER)
_LABELED_GOLD = re.compile(r"\((?P<letter>[A-J])\) *(?!(?:and|,)? *\([A-J]\))(?=[^ })+*/=^_-])")
_MARKED_GOLD = re.compile(r"(?P<letter>[A-J])[.)] +(?=[-0-9\\a-z])")  # D. 4, but no name such as A. Smith
_WHOLE = re.compile(rf"{_LETTER}[.,;: ]*")
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore),? )?(?:(?:the|my) )?(?:(?:final|correct|right|best) )*"
    r"(?:(?:answer|option|choice)(?: is| would be| should be|:| =)*:? *)*",
    re.IGNORECASE,
)
_IS_RIGHT = re.compile(
    rf"(?:(?:the )?(?:option|choice|answer) )?{_LETTER},? (?:is|would be|must be) (?:indeed )?(?:the )?"
    r"(?:(?:only|most) )?(?:correct|right|best)(?: (?:answer|option|choice|one))?[.! ]*"
)
# A letter and the text of its choice: C) 12 km  C. 12 km  (C) 12 km  C: 12 km  C - 12 km  C because ...
_LABEL = re.compile(
    r"[(\[](?P<bracketed>[A-Ja-j])[)\]][.:]? +|(?P<marked>[A-Ja-j])(?:[).:]| [-\u2013\u2014]) +"
    r"|(?P<reasoned>[A-J]),? (?=because|since|as\b)"
)
_RETRACTS = re.compile(rf"(?:i )?(?:{_DOUBTS}|and|but|is|are|isn't|/|&)\b", re.IGNORECASE)
# A letter that may name another choice: no article, and no unit after a number.
_MENTION = re.compile(
    r"(?<![A-Za-z0-9\\_^°])(?<![0-9] )(?<!\\circ )(?<!\\circ)"
    r"(?:[B-HJ]|A(?! (?!and\b|or\b|nor\b|is\b)[a-z]))(?![A-Za-z0-9_^'])"
    r"|(?<![A-Za-z0-9\\])[(\[]?[A-Ja-j][)\]:]"
)


def is_choice(gold: str) -> bool:
    """Whether a gold answer is a choice: one capital letter from A to J, or its label and text, `(D) 4` or `D. 4`."""
    gold = without_marks(plain_latex(gold))
    match = _GOLD.fullmatch(gold) or _LABELED_GOLD.match(gold) or _MARKED_GOLD.match(gold)
    return match is not None and match["letter"].isupper()


def chosen_letter(answer: str, prompt: str = "") -> str:
    r"""The one choice that an answer names, as a capital letter. Empty if it names none or several.

    The text of the choice may follow its letter: `C) 12 km`. If the prompt does not hold that text, it must not begin
    with a hedge or a denial, nor name another choice.
    """
    text = " ".join(without_marks(plain_latex(answer)).replace("*", " ").replace(r"\$", " ").split())
    lead = _LEAD.match(text)
    text = text[lead.end() if lead else 0 :]
    if whole := _WHOLE.fullmatch(text) or _IS_RIGHT.fullmatch(text):
        return whole["letter"].upper()
    label = _LABEL.match(text)
    if label is None:
        return ""
    letter, rest = label[label.lastgroup or 0].upper(), text[label.end() :]
    held = rest and rest.casefold() in " ".join(prompt.casefold().split())
    others = {mention.strip("([)]:").upper() for mention in _MENTION.findall(rest)} - {letter}
    return letter if held or not (others or _RETRACTS.match(rest)) else ""


def choice_text(answer: str) -> str:
    """What follows the letter of a choice: `12 km` in `(C) 12 km`. Empty without a label."""
    text = " ".join(without_marks(plain_latex(answer)).split())
    label = _LABEL.match(text)
    return text[label.end() :] if label else ""
