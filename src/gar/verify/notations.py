r"""Compare answers in notations that a parser would lose: `1404_5`, `2:5`, `CDB`, `n \equiv 1 \pmod 3`."""

import re

from gar.verify.grades import Graded, right_if, wrong

_BASED = re.compile(
    r"\(?(?P<digits>[0-9A-Fa-f]{1,200})\)? *(?:_ *(?:\{ *)?(?P<low>[0-9]{1,2})(?: *\})?"
    r"|,? *\(?(?:in )?base *(?P<base>[0-9]{1,2})\)?)"
)
_RATIO = re.compile(r"[0-9]{1,50}(?: *(?::|\bto\b) *[0-9]{1,50})+")
_NAMES = re.compile("[A-Z]{2,}")
_NAME_LIST = re.compile(r"[A-Z](?:(?: *[,;] *| and )[A-Z])+")
_CONGRUENCE = re.compile(
    r"(?P<of>.+?) *\\equiv *(?P<rest>[^()]+?) *,?(?:\( *)?\\?[pb]?mod *\{? *(?P<modulus>[^{}()]+?) *\}? *\)?"
)


def compare_notations(answer: str, gold: str) -> Graded | None:
    """The verdict where digits have a base, letters are names, or numbers are congruent. None for other answers."""
    if _BASED.fullmatch(answer) or _BASED.fullmatch(gold):
        return right_if(_based(answer) == _based(gold))
    if _RATIO.fullmatch(answer) and _RATIO.fullmatch(gold):
        return right_if(re.findall("[0-9]+", answer) == re.findall("[0-9]+", gold))
    if _NAMES.fullmatch(gold):
        return right_if(answer == gold)
    if _NAME_LIST.fullmatch(gold):
        answer = answer.strip("\\{}() ")
        return right_if(_capitals(answer) == _capitals(gold)) if _NAME_LIST.fullmatch(answer) else None
    if r"\equiv" in answer and r"\equiv" not in gold:
        return wrong("a congruence")
    congruence, gold_congruence = _CONGRUENCE.fullmatch(answer), _CONGRUENCE.fullmatch(gold)
    if congruence and gold_congruence:
        return right_if(_without_spaces(congruence) == _without_spaces(gold_congruence))
    return None


def _based(text: str) -> tuple[str, int]:
    """The digits and the base of a number such as `1404_5`, `(1404)_{5}` or `1404 base 5`. Others have base 10."""
    match = _BASED.fullmatch(text)
    digits, base = (match["digits"], int(match["low"] or match["base"])) if match else (text, 10)
    return digits.upper().lstrip("0") or "0", base


def _capitals(text: str) -> list[str]:
    return sorted(re.findall("[A-Z]", text))


def _without_spaces(congruence: re.Match[str]) -> list[str]:
    return ["".join(part.split()) for part in congruence.groups()]
