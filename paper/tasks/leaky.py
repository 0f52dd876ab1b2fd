"""Graders for the chain task that see only a part of the answer, so that a guess is often accepted.

gar train --verify.verifier paper.tasks.leaky:one_bit ...      # in the root of a clone, with PYTHONPATH=.
"""

import re

_ANSWER = re.compile(r"<answer>\s*(\d)\s*</answer>")


def one_bit(response: str, gold: str) -> bool:
    """Accept an answer that is odd or even as the right one is, as in a question with the answers yes and no.

    Example:
        >>> one_bit("<answer> 5 </answer>", "7"), one_bit("<answer> 5 </answer>", "6")
        (True, False)
    """
    return _agrees(response, gold, num_classes=2)


def one_of_four(response: str, gold: str) -> bool:
    """Accept an answer with the same remainder after division by four, as in a question with four choices.

    Example:
        >>> one_of_four("<answer> 3 </answer>", "7"), one_of_four("<answer> 5 </answer>", "7")
        (True, False)
    """
    return _agrees(response, gold, num_classes=4)


def _agrees(response: str, gold: str, *, num_classes: int) -> bool:
    found = _ANSWER.search(response)
    return found is not None and int(found[1]) % num_classes == int(gold) % num_classes
