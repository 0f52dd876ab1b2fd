"""Gold answers that a response can hit by luck."""

import re
from functools import lru_cache

from gar.verify.choices import is_choice
from gar.verify.latex import plain_latex

_WORDS = frozenset({"yes", "no", "true", "false"})
_MAY_BE = re.compile(r"(?<![A-Za-z\\])(?:[A-J]|(?i:yes|no|true|false))(?![A-Za-z])")
"""Most answers are not worth a closer look, which takes 40 microseconds."""
_LONGEST = 200
"""Characters. The text of a choice may follow its letter."""


@lru_cache(1024)  # a source has few of them
def is_guessable(answer: str) -> bool:
    """Whether a gold answer is one of few that a guess would try: the letter of a choice, yes or no, true or false.

    A verifier cannot tell a lucky answer from a derived one, and pays both.
    """
    if len(answer) > _LONGEST or not _MAY_BE.search(answer):
        return False
    return is_choice(answer) or plain_latex(answer).strip(" .$").casefold() in _WORDS
