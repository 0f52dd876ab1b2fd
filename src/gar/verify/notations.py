r"""Compare answers whose notation is their value: `1404_5`, `2:5`, `6:30 pm`, `CDB`, `n \equiv 1 \pmod 3`, words."""

import re

from gar.verify.grades import Graded, failed, right_if, unparsed, wrong
from gar.verify.words import DATA, DOUBTS, NEVER, NUMBER_WORDS, WORDS

_BASED = re.compile(
    r"\(?(?P<digits>[0-9A-Fa-f]{1,200})\)? *(?:_ *(?:\{ *)?(?P<low>[0-9]{1,2}|[a-z]+)(?: *\})?"
    r"|,? *\(?(?:in )?base *(?P<base>[0-9]{1,2}|[a-z]+)\)?)"
)
_RATIO = re.compile(r"[0-9.]{1,50}(?: *(?::|\bto\b) *[0-9.]{1,50})+(?: [ap]m)?|[0-9]{1,2} [ap]m")
_BRACKETED = re.compile(r"\(([A-Z])\)")
_NAMES = re.compile("[A-Z]{2,}")
_NAME_LIST = re.compile(r"[A-Z](?:(?: *[,;] *| and )[A-Z])+")
_CONGRUENCE = re.compile(
    r"(?P<of>.+?) *\\equiv *(?P<rest>[^()]+?) *,?(?:\( *)?\\?[pb]?mod *\{? *(?P<modulus>[^{}()]+?) *\}? *\)?"
)
_CLASS = re.compile(r"(?P<of>[a-z]) *= *(?P<modulus>[0-9]+) *(?P<name>[a-z]) *(?P<rest>[-+] *[0-9]+)?")
_SUBJECT = re.compile(r"(?P<subject>.*)\b(?:is|are|was|be|wins?)\b:?(?: (?:on|in|at|an?|the)\b)*", re.DOTALL)
_DATE = re.compile(rf"(?P<day>[0-9]{{1,2}}) (?:of )?(?P<month>{'|'.join(DATA['months']['names'])})\b")
_TOKEN = re.compile(r"(?<=[0-9]), *(?=[0-9])|[a-z]+(?:['-][a-z]+)*|[^\W_]|[^\w\s.,;:!?'\"*]|_")
_FORMULA = re.compile(r"[=^]|\\[a-z]|[0-9][^.]*[0-9A-Za-z][^.]*[-+*]")
_SENTENCES = re.compile(r"[a-z0-9]{2}\. +[A-Z]|[0-9]\. +[A-Z]")
_YES_OR_NO = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
_LOSES = {"lose", "loses", "loser", "lost", "neither"}


def compare_notations(answer: str, gold: str) -> Graded | None:
    """The verdict where digits have a base, letters are names, or numbers are congruent. None for other answers."""
    answer, gold = _BRACKETED.sub(r"\1", answer), _BRACKETED.sub(r"\1", gold)
    if _BASED.fullmatch(answer) or _BASED.fullmatch(gold):
        return right_if(_based(answer) == _based(gold))
    if _RATIO.fullmatch(gold):
        if not _RATIO.fullmatch(answer):
            return unparsed("no ratio and no time")
        return right_if(_ratio(answer) == _ratio(gold))
    if _NAMES.fullmatch(gold):
        names = re.findall("[A-Z]", answer) if _NAME_LIST.fullmatch(answer) else answer
        return right_if("".join(names) == gold)
    if _NAME_LIST.fullmatch(gold):
        answer = answer.strip("\\{}() ")
        if " or " in answer:
            return unparsed("one of several letters")
        return right_if(_capitals(answer) == _capitals(gold)) if _NAME_LIST.fullmatch(answer) else None
    if "mod" in gold and (congruence := _CONGRUENCE.fullmatch(gold)):
        return _compare_residues(answer, congruence)
    if "mod" in answer and (congruence := _CONGRUENCE.fullmatch(answer)):
        named = _CLASS.fullmatch(gold)
        return _compare_residues(answer, named) if named else wrong("a congruence")
    return None


def _ratio(text: str) -> list[str]:
    return re.findall("[0-9.]+|[ap]m", text)


def _based(text: str) -> tuple[str, int]:
    """The digits and the base of a number such as `1404_5`, `(1404)_{5}` or `1404 base 5`. Others have base 10."""
    match = _BASED.fullmatch(re.sub(" (?=[0-9A-F]+ *_)", "", text))
    base = (match["low"] or match["base"]) if match else "10"
    digits = match["digits"] if match else text
    return digits.upper().lstrip("0") or "0", int(base) if base.isdigit() else NUMBER_WORDS.get(base, -1)


def _capitals(text: str) -> list[str]:
    return sorted(re.findall("[A-Z]", text))


def _compare_residues(answer: str, gold: re.Match[str]) -> Graded:
    """A residue class, as a congruence of one or several residues. For a congruence `n = 5k+2` too."""
    match = _CONGRUENCE.fullmatch(answer) or (_CLASS.fullmatch(answer) if gold.re is _CONGRUENCE else None)
    return right_if(match is not None and _residues(match) == _residues(gold))


def _residues(match: re.Match[str]) -> tuple[str, str, frozenset[str]]:
    """The number that is congruent, the modulus and the residues. Of `n = 5k-1` the least residue, 4."""
    of, modulus, rest = ("".join(match[name].split()) if match[name] else "0" for name in ("of", "modulus", "rest"))
    if match.re is _CLASS:
        rest = str(int(rest) % int(modulus)) if int(modulus) else rest
    return of, modulus, frozenset(re.split(r",|\\?or|\\?and", rest))


def compare_words(answer: str, gold: str) -> Graded:
    """The verdict on an answer to a gold answer in words: the same words in the same order.

    A sentence may end in them (`the day is Tuesday`). After `Yes` a comma and a sentence may follow.
    """
    if "?" in answer or (".." in answer and ".." not in gold) or (r"\ldots" in answer and r"\ldots" not in gold):
        return unparsed("an open end")
    if _FORMULA.search(gold) or _SENTENCES.search(gold):  # several sentences are no answer: the data are wrong
        same = [_in_lower_case("".join(text.rstrip(".").split())) for text in (answer, gold)]
        return right_if(True) if same[0] == same[1] else failed(f"the gold answer {gold!r} cannot be parsed")
    expected, tokens = _tokens(gold), _tokens(answer)
    if tokens == expected:
        return right_if(True)
    changing = ((DOUBTS | {"or", "about", "approximately"}) & {*tokens}) - {*expected}
    opposite = _YES_OR_NO.get(gold.casefold())
    if opposite and tokens[:1] == expected and re.match(r"\w+[.,:;!]", answer):
        changing = changing - {"not", "doesn't", "isn't"} if expected == ["no"] else changing
        return unparsed("a changed answer") if changing or opposite in tokens else right_if(True)
    if changing:
        return unparsed(f"the answer does not state one value: {min(changing)!r}")
    subject = _SUBJECT.match(answer)
    if subject and _tokens(answer[subject.end() :]) == expected:
        words = set(_tokens(subject["subject"]))
        return unparsed("a sentence about something else") if words & (NEVER | _LOSES) else right_if(True)
    return wrong()


def _tokens(text: str) -> list[str]:
    """The words, letters and signs of a text, without articles, marks and fonts. Words have no case."""
    return [part for part in _TOKEN.findall(_in_lower_case(text)) if part not in WORDS["articles"]]


def _in_lower_case(text: str) -> str:
    """Words in lower case, the month of a date before its day."""
    text = re.sub(r"(?<=[0-9])(?:st|nd|rd|th)\b", "", re.sub(r"\\(?:text|mathrm) *", "", text))
    text = re.sub(r"[A-Za-z]{2,}", lambda word: word[0].lower(), text)
    return _DATE.sub(lambda date: f"{date['month']} {date['day']}", text)
