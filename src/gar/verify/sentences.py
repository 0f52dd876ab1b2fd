r"""Find the value that a sentence states. `The answer is 78.`, `So she has $78 left`: 78.

Only a text that states exactly one value is read. A text with a second number, a word that changes or denies the value
(`not 78`, `half of 78`, `at least 78`), or a hedge (`perhaps 78`, `78 or so`) stays as it is.
"""

import re

_NUMBER_WORDS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    "|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    "|score|gross|dozens?|couple|half|halves|thirds?|quarters?|fourths?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?"
    "|(?:hundred|thousand|lakh|lac|crore|myriad|googol|[a-z]*illion|[a-z]*illiard)(?:s|ths?)?"
)
HEDGES = (
    "not|no|nor|never|neither|wrong|incorrect|false|maybe|perhaps|probably|possibly|likely|unlikely|guess|think|believe"
    "|hope|assume|assuming|estimated?|might|may|could|unsure|unclear|unknown|cannot|suppose|supposedly|presumably"
    "|apparently|seemingly|hardly|barely|if|unless|or"
)
"""A number next to one of these words is not a stated answer."""
# Beside one of these words a number is not the value.
_CHANGES = re.compile(
    rf"\b(?:{_NUMBER_WORDS}|{HEDGES}|without|except|but|minus|plus|divided|multiplied|squared|cubed"
    "|factorial|mod|modulo|pi|sqrt|log|ln|sin|cos|tan|root|power|powers|multiple|multiples|divisors?|doubled?|twice"
    "|tripled?|thrice|negative|reciprocal|inverse|opposite|than|least|most|over|under|above|below|between|almost|nearly"
    "|about|around|approximately|approx|roughly|circa|ish|odd|even|primes?|otherwise|depends|instead|something"
    r"|ballpark|(?:close|up) to|(?<!in )all|[a-z]+n['\u2019]t)\b|\bca?\. |\bca(?= +[,$0-9])"
)
_JOINS = {"or", "and"}
_KINDS = {"all", "odd", "even", "prime", "primes"}
_MATHS = {"sin", "cos", "tan", "log", "ln", "lim", "max", "min", "gcd", "lcm", "mod", "sqrt", "pi", "inf", "infinity",
          "frac", "pct", "percent", "percentage", "boxed", "text"}  # fmt: skip  # a list of words

_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|finally)\b,? *)*"
    r"(?:(?:(?:(?:the|my|our) )?(?:(?:final|correct|right|exact|numerical|required|desired) )*"
    r"(?:answer|result|solution|value|total|sum|number)"
    r"(?: (?:to|of|for) (?:the|this) (?:question|problem|expression))?|it)"
    r" *(?:\bis\b(?: equal to)?|\bequals\b|would be|must be|should be|comes to|[:=])"
    r"|(?:we|i) (?:get|have|obtain|find)\b) *:?"
    r"(?: *(?:exactly|simply|just)\b)? *",
    re.IGNORECASE,
)
_EQUALS = re.compile(r"= *")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z{(])")
TEXT_COMMAND = re.compile(r"\\(?:text|textrm|textbf|textit|mathrm|mbox) *\{([^{}]*)\}")
_NAME_COMMAND = re.compile(r"\\(?:begin|end|operatorname)\*? *\{[^{}]*\}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_PHRASE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,} [A-Za-z]{2,}(?![A-Za-z])")
_MATH = re.compile(r"\$\$?([^$]+)\$\$?(?![0-9])|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_A_NUMBER = (
    r"(?:[0-9]+ +)?[0-9]+/[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"
    r"|[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]{1,4})?|\.[0-9]+"
)
# Between a space, bracket or equals sign and anything but a letter, digit or operator.
_NUMBER = re.compile(
    rf"(?:(?<=[ (=:])|^)(?P<value>-?(?:\\?[$€£¥])?-?(?:{_A_NUMBER})(?: ?\\?%| percent\b)?)\$?"
    r"(?=[ ,.;:!)]|/[a-z]|$)(?![.,][0-9]| *[-+*^=_(]| */[^a-z])"
)
_UNIT = re.compile(
    r"(?:(?<=[0-9})!])|(?<=\\pi))(?: |\\[ ,;:!]|~)*"
    r"(?P<words>[A-Za-z]{2,}(?:[ .-]+[A-Za-z]{2,})*|[msghL])(?:\^\{?-?[0-9]\}?)?"
    r"(?:/[A-Za-z]+(?:\^\{?-?[0-9]\}?)?)?[ .]*$"
)
_CURRENCY = re.compile(r"-?\\?([$€£¥])[^$€£¥]*[0-9]")
_SPELLINGS: dict[str, str] = {name: unit for unit, names in {
    "$": "dollar usd", "€": "euro eur", "£": "pound gbp", "circ": "degree deg", "km": "kilometer kilometre",
    "m": "meter metre", "cm": "centimeter centimetre", "mm": "millimeter millimetre", "kg": "kilogram", "g": "gram",
    "h": "hour hr", "min": "minute", "s": "second sec", "l": "liter litre", "/": "per",
}.items() for name in names.split()}  # fmt: skip  # a table
_PERCENT = re.compile("(?:%|per ?cent|pct)[ .]*$")
_PROSE = re.compile(r"[A-Za-z ,.;:!'\"()*°%=$€£¥\u2018\u2019\u2013\u2014-]*")
# Before the value of a sentence.
_STATES = re.compile(
    r"(?:=|\b(?:is|are|was|were|be|has|have|had|gets?|got|[a-z]{2,}(?:ed|[^s]s))(?: (?:exactly|only|a total of))?)"
    r" *[$€£¥]?$",
    re.IGNORECASE,
)
# Before a number: it is part of the value, or one of several.
_LEAVES_OPEN = re.compile(
    r"(?<!total)(?<!sum)(?<!value)(?<!cost)(?<!price)(?<!profit)(?<!average)(?<!maximum)(?<!minimum) of$"
    r"|\b(?:some|any)$"
)


def stated_value(text: str) -> str:
    """The single value that a text states in words. The text itself if it states none, or several.

    >>> stated_value("So the final answer is $78$."), stated_value("She has 78 apples left"), stated_value("3 or 7")
    ('78', '78', '3 or 7')
    """
    rest = without_lead(text)
    return _one_value(rest) or rest


def last_value(sentence: str) -> str:
    """The last number or formula of a sentence, if a verb or an equals sign states it. Else the sentence itself.

    >>> last_value("2 books cost 2 * 39 = 78 dollars"), last_value("Of 80, not 78"), last_value("Tom has 3 or 78")
    ('78', 'Of 80, not 78', 'Tom has 3 or 78')
    """
    found = sorted([*_MATH.finditer(sentence), *_NUMBER.finditer(sentence)], key=lambda match: match.end())
    if not found or not _STATES.search(before := sentence[: found[-1].start()]):
        return sentence
    near = " ".join([*before.split()[-4:-1], ",", *sentence[found[-1].end() :].split()[:2]])
    return sentence if ".." in near or changes_value(near) else _matched(found[-1])


def has_words(text: str) -> bool:
    """Whether a text may state a value in words: it has a word, or begins with an equals sign."""
    return text.startswith("=") or _WORD.search(text) is not None


def without_lead(text: str) -> str:
    """A text without an introduction such as `The answer is`."""
    rest = text
    for lead in (_LEAD, _EQUALS):
        match = lead.match(rest)
        rest = rest[match.end() :] if match else rest
    return without_full_stop(rest.strip()) or text


def without_full_stop(text: str) -> str:
    """A text without a full stop at its end. An ellipsis stays."""
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def without_unit(text: str) -> str:
    """A mathematical expression without the words that follow it, unless they change its value (`7 or so`)."""
    plain = TEXT_COMMAND.sub(r" \1", text)
    unit = _UNIT.search(plain)
    if unit is None or plain_words(plain[: unit.start()]):
        return text
    if changes_value(unit["words"]) or _PERCENT.search(unit["words"]):
        return text
    return plain[: unit.start()].rstrip()


def unit_of(text: str) -> list[str]:
    r"""The unit of a value, in one spelling, as words. Empty without one.

    >>> unit_of("78 kilometers"), unit_of(r"9\pi\text{ cm}^2"), unit_of("She has 78 hours"), unit_of("3m")
    (['km'], ['cm', '2'], ['h'], [])
    """
    plain = TEXT_COMMAND.sub(r" \1", without_lead(text))
    if currency := _CURRENCY.match(plain):
        return [currency[1]]
    value = stated_value(plain)
    after = plain.rpartition(value)[2] if value != plain else ""
    if not after and (unit := _UNIT.search(plain)) and _is_unit(unit):
        after = unit[0]
    elif not after and (degrees := re.search(r"\\circ\}?$", plain)):
        after = degrees[0]
    names: list[str] = [
        name[:-1] if len(name) > 3 and name.endswith("s") else name
        for name in re.findall("[a-z]+|[/0-9]", after.lower())
    ]
    return ["%"] if _PERCENT.search(plain) else [_SPELLINGS.get(name, name) for name in names]


def _is_unit(match: re.Match[str]) -> bool:
    """Whether words after a value are its unit. A single letter is one only after a space and a number."""
    letter_of_number = match[0][0] == " " and not re.search("[A-Za-z_]", match.string[: match.start()])
    return letter_of_number if len(match["words"]) == 1 else not changes_value(match["words"])


def changes_value(text: str) -> bool:
    """Whether a word changes the number beside it, denies it, or leaves it open."""
    return _CHANGES.search(text.lower()) is not None


def changing_word(text: str, gold: str) -> str:
    """The first word that hedges, denies or changes a value. Empty without one.

    Names of functions, kinds of numbers (`all even n` for `odd n`), and words of the gold answer do not count.
    """
    allowed = _MATHS | _KINDS | set(plain_words(gold))
    prose = _COMMAND.sub(" ", TEXT_COMMAND.sub(r" \1 ", text)).lower()
    return next((word for word in _CHANGES.findall(prose) if word not in allowed), "")


def unreadable(text: str, gold: str) -> str:
    """Why no value can be read from a text with words. Empty if it is mathematics alone, lists (`3 or 7`) included."""
    word = changing_word(text, gold)
    if has_letters(gold) and not word and not _PHRASE.search(text):
        return ""  # letters may be variables
    if not set(plain_words(text)) - _JOINS - _MATHS:
        return ""
    if not any(char.isdigit() for char in text) and "\\" not in text:
        return "the answer holds no number"
    return "the answer does not state one value" + (f": {word!r}" if word else "")


def has_letters(text: str) -> bool:
    """Whether a text has letters outside the names of LaTeX commands."""
    return bool(re.search("[A-Za-z]", _COMMAND.sub("", text)))


def plain_words(text: str) -> list[str]:
    """The words of at least two letters, in lower case and in order, without LaTeX command names."""
    return [word.lower() for word in _WORD.findall(TEXT_COMMAND.sub(r" \1 ", _NAME_COMMAND.sub(" ", text)))]


def _one_value(text: str) -> str | None:
    """The only value in a sentence, either a formula in dollars or a number. None without one."""
    text = TEXT_COMMAND.sub(r" \1 ", text)
    formulas = list(_MATH.finditer(text))
    if len(formulas) == 1 and _is_prose_around(text, formulas[0]):
        return _matched(formulas[0])
    text = text.replace("**", "")
    numbers = list(_NUMBER.finditer(text))
    if len(numbers) == 1 and _is_prose_around(text, numbers[0]) and _WORD.search(text):
        return _matched(numbers[0])
    return None


def _matched(value: re.Match[str]) -> str:
    return next(filter(None, value.groups())).strip()


def _is_prose_around(text: str, value: re.Match[str]) -> bool:
    before, after = text[: value.start()], text[value.end() :]
    around = f"{before} , {after}"  # the comma keeps phrases from reaching across the value
    closed = ".." not in around and "=" not in after and not _LEAVES_OPEN.search(before.rstrip().lower())
    factor = re.search(r"(?<![A-Za-z'\u2019])[B-HJ-Zb-hj-z](?![A-Za-z'\u2019])", after)  # or a unit of one letter
    return bool(_PROSE.fullmatch(around)) and closed and not factor and not changes_value(around)
