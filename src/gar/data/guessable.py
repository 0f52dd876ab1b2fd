"""Gold answers that a response can hit by luck."""

from functools import lru_cache

from gar.verify.choices import is_choice
from gar.verify.latex import plain_latex

_WORDS = frozenset({"yes", "no", "true", "false"})
_LONGEST = 200
"""Characters. The text of a choice may follow its letter."""


@lru_cache(1024)  # a source has few of them
def is_guessable(answer: str) -> bool:
    """Whether a gold answer is one of few that a guess would try: the letter of a choice, yes or no, true or false.

    A verifier cannot tell a lucky answer from a derived one, and pays both.
    """
    if len(answer) > _LONGEST:
        return False
    return is_choice(answer) or plain_latex(answer).strip(" .$").casefold() in _WORDS
