"""The closed form of a token's gradient, which every sum over the vocabulary ends in.

`dCE/dh_t = (1 - p_y) (sum_{v != y} q_v W_v - W_y)`, q = softmax over v != y. Forming p - e first loses all
digits on confident tokens, where p_y rounds to 1. This form subtracts nothing. With a soft-cap or a scale, row v of W
has the factor dz_v / d(W h)_v, its slope.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class SoftmaxSums(NamedTuple):
    """Sums over the whole vocabulary for the tokens of a chunk.

    Attributes:
        complement: 1 - p_y, [tokens].
        others: `sum_{v != y} q_v slope_v W_v`, [tokens, hidden].
        target_slopes: `dz_y / d(W h)_y`, [tokens] or one for all.
        target_rows: W_y, [tokens, hidden].

    If ranks hold parts of W, `others` and `target_rows` are this rank's parts.
    """

    complement: Tensor
    others: Tensor
    target_slopes: Tensor
    target_rows: Tensor

    @classmethod
    def of(
        cls, total: Tensor, at_target: Tensor, weighted: Tensor, target_slopes: Tensor, target_rows: Tensor
    ) -> "SoftmaxSums":
        """Normalize sums of exponentials relative to any reference.

        `total` and `at_target` must come from logits of one precision. Otherwise the cancellation that excluding y
        avoids returns.

        Args:
            total: `sum_{v != y} exp(z_v - ref)`, [tokens].
            at_target: `exp(z_y - ref)`, [tokens].
            weighted: `sum_{v != y} exp(z_v - ref) slope_v W_v`, [tokens, hidden], or one rank's part of it.
                Overwritten.
            target_slopes: [tokens] or one for all.
            target_rows: [tokens, hidden].
        """
        others = weighted.div_(total.clamp(min=torch.finfo(total.dtype).tiny)[:, None])
        return cls(total / (total + at_target), others, target_slopes, target_rows)

    def hidden_gradients(self) -> Tensor:
        """`dCE/dh_t`, [tokens, hidden], in the dtype of the sums, or this rank's part of it."""
        return self.complement[:, None] * (self.others - self.target_slopes[:, None] * self.target_rows)
