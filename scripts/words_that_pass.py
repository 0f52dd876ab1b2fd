"""Print the common English words that may stand before or after a right value, for a person to read.

    pip install wordfreq
    python scripts/words_that_pass.py [--words 3000] [--file words.txt] > tests/verify/words_that_pass.txt

Each word is put before and after 78 in an extracted answer and in a short sentence. A line holds a place and the words
that pass there. They should be units, neutral words, and nouns in the plural. The list of words is wordfreq's (CC BY-SA
4.0), which is not committed. What passes is.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from gar.types import Status
from gar.verify import parse_response
from gar.verify.answers import grade_answer

GOLD = "78"
ANSWERS = {"before": "{} 78", "after": "78 {}", "after in text": r"78\text{{ {}}}", "for $78": r"\$78 {}"}
RESPONSES = {
    "line": "{} 78",
    "end of a line": "78 {}.",
    "sentence": "It is {} 78.",
    "sentence with a noun": "It {} 78 items.",
}


def passing(words: Iterable[str]) -> dict[str, list[str]]:
    """The words that pass, for each place."""
    words = list(words)
    found = {}
    for place, template in ANSWERS.items():
        gold = r"\$78" if "$" in place else GOLD
        found[place] = [word for word in words if _passes(template.format(word), gold)]
    for place, template in RESPONSES.items():
        found[f"response, {place}"] = [
            word for word in words if _passes(parse_response(template.format(word), format="none").answer or "", GOLD)
        ]
    return found


def _passes(answer: str, gold: str) -> bool:
    return grade_answer(answer, gold).status is Status.OK


def common_words(num: int) -> list[str]:
    """The most common English words of two letters and more."""
    from wordfreq import top_n_list  # pyright: ignore[reportMissingImports]

    words = (word for word in top_n_list("en", 2 * num) if word.isascii() and word.isalpha() and len(word) > 1)
    return [word for word in words if not word.startswith("fuck")][:num]


def main() -> None:
    """Print the words that pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=3000)
    parser.add_argument("--file", type=Path, help="a word a line, instead of wordfreq's")
    args = parser.parse_args()
    words = args.file.read_text().split() if args.file else common_words(args.words)
    for place, passed in passing(words).items():
        print(f"{place}: {' '.join(sorted(passed))}")


if __name__ == "__main__":
    main()
