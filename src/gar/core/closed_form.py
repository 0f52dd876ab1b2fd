"""The closed form of a token's gradient, in which every way to sum over the vocabulary ends.

`dCE/dh_t = (1 - p_y) (sum_{v != y} q_v W_v - W_y)`, q = softmax over v != y. Forming p - e and multiplying loses every
digit on confident tokens, where p_y rounds to 1: this form never subtracts. With soft-cap and scale each row of W
carries the factor dz_v / d(W h)_v, its slope.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class SoftmaxSums(NamedTuple):
    """What the tokens of a chunk need from the whole vocabulary.

    Attributes:
        complement: 1 - p_y, [tokens].
        others: `sum_{v != y} q_v slope_v W_v`, [tokens, hidden].
        target_slopes: `dz_y / d(W h)_y`, [tokens] or one for all.
    """

    complement: Tensor
    others: Tensor
    target_slopes: Tensor

    @classmethod
    def of(cls, total: Tensor, at_target: Tensor, weighted: Tensor, target_slopes: Tensor) -> "SoftmaxSums":
        """From sums relative to any reference.

        Both parts of p_y must come from the same logits: mixing them with more exact ones would undo what leaving out
        y is for.

        Args:
            total: `sum_{v != y} exp(z_v - ref)`, [tokens].
            at_target: `exp(z_y - ref)`, [tokens].
            weighted: `sum_{v != y} exp(z_v - ref) slope_v W_v`, [tokens, hidden], or a rank's part. Overwritten.
            target_slopes: [tokens] or one for all.
        """
        others = weighted.div_(total.clamp(min=torch.finfo(total.dtype).tiny)[:, None])
        return cls(total / (total + at_target), others, target_slopes)

    def hidden_gradients(self, target_rows: Tensor) -> Tensor:
        """`dCE/dh_t`, [tokens, hidden], from W_y of each token, in the sums' dtype."""
        return self.complement[:, None] * (self.others - self.target_slopes[:, None] * target_rows)
