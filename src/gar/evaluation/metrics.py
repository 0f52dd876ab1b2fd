"""The numbers of an evaluation: pass@k and maj@k of each problem."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from gar.errors import ConfigError

Measure = Literal["pass", "majority"]


def mean(values: Iterable[float]) -> float:
    """Mean of at least one number. For truth values, the fraction that is true."""
    numbers = list(values)
    return sum(numbers) / len(numbers)


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Chance that at least one of k responses, drawn without replacement from a problem's samples, is correct.

        1 - C(n - c, k) / C(n, k)  =  1 - prod_{i = n-c+1..n} (1 - k / i)

    The product needs no large binomials. With n = k it is 1 if any sample is correct, and its variance is largest.

    Args:
        num_samples: n, the responses to the problem.
        num_correct: c, the correct ones.
        k: Responses drawn.

    Returns:
        A number in [0, 1]. Exactly 0 if none is correct, exactly 1 if every draw of k holds a correct one.

    Raises:
        ValueError: k < 1, k > n, c < 0 or c > n.

    References:
        Chen et al. 2021, Evaluating Large Language Models Trained on Code, arXiv 2107.03374, section 2.1.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"pass@k needs 1 <= k <= num_samples, got k = {k} and num_samples = {num_samples}")
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"num_correct must lie in [0, num_samples = {num_samples}], got {num_correct}")
    num_wrong = num_samples - num_correct
    if num_wrong < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(num_wrong + 1, num_samples + 1))


@lru_cache(maxsize=4096)
def majority_at_k(num_right: int, wrong_votes: tuple[int, ...], num_abstained: int, k: int) -> float:
    """Chance that the most frequent answer of k samples is right, the k drawn without replacement from a problem's n.

    With `c_0` votes for the right answer, `c_1, c_2, ...` for the others, and ties broken evenly:

        sum over t >= 1 and m >= 0 of  C(c_0, t) W(t, m) / (m + 1) / C(n, k)

    W(t, m) counts the ways to draw the other k - t samples so that m other answers have exactly t votes and none has
    more. `wrong_votes` are the votes for each other answer, answers of equal value together. Samples without an answer
    abstain. The value is exact: no draw is simulated. maj@1 is pass@1, and 0 if no vote is right.

    References:
        Wang et al. 2022, Self-Consistency, arXiv 2203.11171, for the vote. The counting is ours.

    Example:
        >>> majority_at_k(2, (1,), 0, 3), majority_at_k(1, (1,), 0, 2)
        (1.0, 0.5)
    """
    if k == num_right + sum(wrong_votes) + num_abstained:  # all are drawn: one vote
        return (num_right > 0 and num_right >= max(wrong_votes, default=0)) / (1 + wrong_votes.count(num_right))
    total = math.comb(num_right + sum(wrong_votes) + num_abstained, k)
    share = 0.0
    for t in range(1, min(num_right, k) + 1):
        # By the number of tied answers, and of samples drawn so far.
        ways = Counter({(0, drawn): math.comb(num_abstained, drawn) for drawn in range(k - t + 1)})
        for votes in wrong_votes:
            grown = Counter[tuple[int, int]]()
            for (ties, drawn), count in ways.items():
                for taken in range(min(votes, t, k - t - drawn) + 1):
                    grown[ties + (taken == t), drawn + taken] += count * math.comb(votes, taken)
            ways = grown
        counts = (ways[ties, k - t] for ties in range((k - t) // t + 1))
        share += sum(count * math.comb(num_right, t) / total / (ties + 1) for ties, count in enumerate(counts))
    return min(share, 1.0)


def default_ks(num_samples: int) -> tuple[int, ...]:
    """Powers of 2 up to the number of samples, and that number."""
    powers = [2**exponent for exponent in range(num_samples.bit_length())]
    return tuple(dict.fromkeys([*powers, num_samples]))


def check_ks(ks: Iterable[int], num_samples: int, name: object) -> None:
    """Raise a `ConfigError` if a k is larger than the number of samples. `name` is for the message."""
    if (k := max(ks, default=1)) > num_samples:
        raise ConfigError(
            f"pass@{k} needs {k} samples per problem, and {name} has {num_samples}. Lower --pass-at-k, or draw more "
            "with --samples, into a new folder."
        )


def rate(measure: Measure, k: int, num_samples: int, num_correct: int, wrong_votes: Sequence[int] = ()) -> float:
    """pass@k or maj@k of one problem from its counts, as in `pass_at_k` and `majority_at_k`."""
    if measure == "pass":
        return pass_at_k(num_samples, num_correct, k)
    return majority_at_k(num_correct, tuple(sorted(wrong_votes)), num_samples - num_correct - sum(wrong_votes), k)
