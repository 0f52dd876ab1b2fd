r"""Compare answers in notations that a parser would lose: `1404_5`, `2:5`, `CDB`, `n \equiv 1 \pmod 3`."""

import math
import re

from gar.verify.grades import Graded, right_if, wrong
from gar.verify.numbers import plain_number

_BASED = re.compile(
    r"\(?(?P<digits>[0-9A-Fa-f]{1,200})\)? *(?:_ *(?:\{ *)?(?P<low>[0-9]{1,2})(?: *\})?"
    r"|,? *\(?(?:in )?base *(?P<base>[0-9]{1,2})\)?)"
)
_RATIO = re.compile(r"[0-9]{1,50}(?: *(?::|\bto\b) *[0-9]{1,50})+")
_TIME = re.compile("[0-9]{1,2}:[0-5][0-9]")
_NAMES = re.compile("[A-Z]{2,}")
_NAME_LIST = re.compile(r"[A-Z](?:(?: *[,;] *| and )[A-Z])+")
_CONGRUENCE = re.compile(
    r"(?P<of>.+?) *\\equiv *(?P<rest>[^()]+?) *,?(?:\( *)?\\?[pb]?mod *\{? *(?P<modulus>[^{}()]+?) *\}? *\)?"
)


def compare_notations(answer: str, gold: str, prompt: str) -> Graded | None:
    """The verdict where digits have a base, letters are names, or numbers are congruent. None for other answers."""
    digits, gold_digits = _based(answer), _based(gold)
    if digits or gold_digits:
        return right_if(digits == gold_digits) if gold_digits or not digits else _grade_based(*digits, gold, prompt)
    if _RATIO.fullmatch(answer) and _RATIO.fullmatch(gold):
        written, gold_written = _parts(answer), _parts(gold)
        copied = written != gold_written and any(_parts(ratio[0]) == written for ratio in _RATIO.finditer(prompt))
        same = written == gold_written or (not _TIME.fullmatch(gold) and _lowest(written) == _lowest(gold_written))
        return right_if(same, copied=copied)
    if _NAMES.fullmatch(gold):
        return right_if(answer == gold)
    if _NAME_LIST.fullmatch(gold):
        answer = answer.strip("\\{}() ")
        return right_if(_capitals(answer) == _capitals(gold)) if _NAME_LIST.fullmatch(answer) else None
    if r"\equiv" in answer and r"\equiv" not in gold:
        return wrong("a congruence")
    congruence, gold_congruence = _CONGRUENCE.fullmatch(answer), _CONGRUENCE.fullmatch(gold)
    return right_if(_residue(congruence) == _residue(gold_congruence)) if congruence and gold_congruence else None


def _based(text: str) -> tuple[str, int] | None:
    """The digits and the base of a number such as `1404_5`, `(1404)_{5}` or `1404 base 5`. None for another text."""
    match = _BASED.fullmatch(text)
    return (match["digits"].upper().lstrip("0") or "0", int(match["low"] or match["base"])) if match else None


def _grade_based(digits: str, base: int, gold: str, prompt: str) -> Graded | None:
    """The verdict on digits in a base that the prompt does not hold, for a gold answer that is a plain number."""
    gold_value = plain_number(gold)
    if gold_value is None:
        return None
    try:
        right = base > 1 and int(digits, base) == gold_value
    except ValueError:  # there is no such digit
        right = False
    copied = re.search(rf"(?<![0-9.])0*{digits}\)? *_ *\{{? *{base}(?![0-9])", prompt) is not None
    return right_if(right, copied=copied)


def _parts(ratio: str) -> list[int]:
    return [int(digits) for digits in re.findall("[0-9]+", ratio)]


def _lowest(parts: list[int]) -> list[int]:
    return [part // (math.gcd(*parts) or 1) for part in parts]


def _capitals(text: str) -> list[str]:
    return sorted(re.findall("[A-Z]", text))


def _residue(match: re.Match[str]) -> tuple[str, ...]:
    of, rest, modulus = ("".join(match[name].split()) for name in ("of", "rest", "modulus"))
    if all(re.fullmatch("-?[0-9]{1,50}", part) for part in (rest, modulus)) and int(modulus):
        rest = str(int(rest) % int(modulus))
    return of, rest, modulus
