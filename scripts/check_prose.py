"""Report the prose of pages, docstrings and messages that breaks a rule of CONTRIBUTING that a script can see.

python scripts/check_prose.py                  # pages, docstrings, messages and help texts of src/gar
python scripts/check_prose.py docs README.md   # these alone; --count prints a line for each rule instead
"""

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("README.md", "CONTRIBUTING.md", "RELEASING.md", "docs", "src/gar", "tests/golden/messages.txt")
HISTORY = "docs/log.md"  # what was tried, in the words of its time
MOST_WORDS = {"page": 25, "code": 35}
BRITISH = (
    r"cent(?:red|ring|re)|(?:normal|regular|optim|organ|summar|recogn|initial|token|serial|real|minim|maxim|penal)is(?:e[sd]?|ing|ation)"
    r"|behaviours?|colours?|favours?|labelled|modelling|analys(?:e|ed|ing)|artefacts?|grey|judgement"
)
RULES = {
    "semicolon": r";",
    "refuse": r"\brefus\w+",
    "another than": r"\banother than\b",
    "British": rf"\b(?:{BRITISH})\b",
    "space before %": r"\d %",
    "where for if": r"(?:\b(?:0|1|-1|inf|NaN|[Nn]one|[Ee]mpty|True|False)|\"\"),? where\b"
    r"|\bwhere (?:there (?:is|are)|it (?:is|has|does)|none|nothing|no|known|unknown|given|needed|possible|any)\b",
}
PAGE_RULES = {
    "says, tells": r"\b(?:says?|saying|tells?|telling)\b",
    "stands, goes on": r"\bstand(?:s|ing)?\b(?!-)|\b(?:goes?|going) on\b",
    "that of": r"\b(?:that|those) of\b",
    "whose": r"\bwhose\b(?! voice)",
    "of its own": r"\bof (?:its|your|their) own\b",
}
CODE_RULES = {"Of at the start": r"^Of [a-z]"}
_NOT_PROSE = r"```.*?^ *```$|<picture>.*?</picture>|!\[[^]]*\]|\$\$.*?\$\$|<!--.*?-->|^    .*?$|`[^`]+`|\$[^$\n]+\$|\]\([^)]*\)|https?://\S+|^:::.*?$"
_EXAMPLES = r"^ *>>>(?:.|\n(?!\n))*|^    \w.*\[ .*$|``.*?``"
_ENDS = re.compile(r"\n *\n|\n *(?:[-*]|\d+\.) |\n#+ |\||(?<=[.!?:])[\"')*_]*\s+(?=[\"'(*_]*[A-Z`X])")
_MESSAGE = re.compile(r"(?!import|from gar|default-src)[A-Za-z'{]\S*(?: \S+){4,}")  # none of code in strings


def prose(text: str) -> str:
    """A page without code, formulas and links, each as one word X, on the same lines."""
    return re.sub(_NOT_PROSE, lambda found: "X" + "\n" * found[0].count("\n"), text, flags=re.M | re.S)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The first line and the text of each docstring, without examples, and of each message of five words or more."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as value):
                inner.add(value)
                text = re.sub(_EXAMPLES, "X", inspect.cleandoc(text), flags=re.M)
                yield node.lineno, re.sub(r"^    +(?:\w+: )?|^[A-Z]\w+:$", "- ", text, flags=re.M)
            case ast.JoinedStr(values=values) if node not in inner:
                inner.update(values)
                text = "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in values)
                if _MESSAGE.fullmatch(text.strip()):
                    yield node.lineno, text
            case ast.Constant(value=str(text)) if node not in inner and _MESSAGE.fullmatch(text.strip()):
                yield node.lineno, text


def findings(first: int, text: str, *, page: bool) -> Iterator[tuple[int, str, str]]:
    """The line, rule and words of each finding in a text that begins at line `first`."""
    text = prose(text)
    for rule, pattern in (RULES | PAGE_RULES | ({} if page else CODE_RULES)).items():
        for found in re.finditer(pattern, text, re.I if rule in ("refuse", "British") else 0):
            around = " ".join(text[max(0, found.start() - 30) : found.end() + 20].split())
            yield first + text.count("\n", 0, found.start()), rule, around
    most_words = MOST_WORDS["page" if page else "code"]
    start = 0
    for end in [*(found.start() for found in _ENDS.finditer(text)), len(text)]:
        words = re.findall(r"[\w'-]*[A-Za-z][\w'-]*", text[start:end])
        if len(words) > most_words:
            yield first + text.count("\n", 0, start), f"over {most_words} words", " ".join(words[:8]) + " ..."
        start = end


def main(arguments: list[str]) -> int:
    """Print the findings. They are advice, so the exit status is 0."""
    places = [Path(each) for each in arguments if each != "--count"] or [ROOT / each for each in PLACES]
    paths = [path for place in places for path in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    counts = Counter()
    for path in (path for path in paths if path.suffix in (".md", ".txt", ".py") and not str(path).endswith(HISTORY)):
        for first, text in texts(path) if path.suffix == ".py" else [(1, path.read_text(encoding="utf-8"))]:
            for line, rule, words in findings(first, text, page=path.suffix == ".md"):
                counts[rule] += 1
                if "--count" not in arguments:
                    print(f"{path}:{line}: {rule}: {words}")
    print("\n".join(f"{number:5} {rule}" for rule, number in counts.most_common()) or "No finding.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
