"""Which groups carry a signal, for engines that drop the others and sample more in their place."""

from zlib import crc32

import numpy as np

from gar.response import Response
from gar.step import Shaping, Step

_PAID = 2**40
"""Above every reward in its unit, and so small that sums of keys are exact in float64."""


def signal_key(shaping: Shaping, response: Response, *, has_anchor: bool) -> int:
    """An integer that is the same for all responses of a group only if nothing can be learned from the group.

    A response that may earn a bonus has its tokens as key, up to the last scored one: different tokens have different
    vectors. The key of any other is its reward. So a group is kept if its outcomes differ, or if it has an expert
    solution and at least two right responses that are not the same.

    Args:
        shaping: Method and settings in force.
        response: Read and judged.
        has_anchor: Its problem has an expert solution that can be scored.
    """
    method, step = shaping.method, Step(shaping, [response])
    pays = method.needs_alignment and (method.scores_all or shaping.reward.bonus_weight > 0)
    may_earn = method.scores_all or bool(step.eligible[0])
    if pays and may_earn and has_anchor and response.num_scored_tokens:
        return _PAID + crc32(np.array(response.sequence.cut().ids, dtype=np.int64).tobytes())
    return round(float(step.finish().rewards[0]) * 2**20)
