"""The closed form of a token's gradient. Every way to sum over the vocabulary ends here.

`dCE/dh_t = (1 - p_y) (sum_{v != y} q_v W_v - W_y)`, q = softmax over v != y. Forming p - e first loses all
digits on confident tokens, where p_y rounds to 1; this form does not subtract. With a soft-cap or a scale, each row of
W has the factor dz_v / d(W h)_v, its slope.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gar.core.arguments import Weighting

TOKEN_NORM_FLOOR = 1e-30
"""Below this norm, float32 cannot resolve the direction of a token vector."""


class SoftmaxSums(NamedTuple):
    """Sums over the whole vocabulary for the tokens of a chunk.

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
        """Normalise sums of exponentials relative to any reference.

        `total` and `at_target` must come from logits of one precision: mixing precisions would reintroduce the
        cancellation that excluding y avoids.

        Args:
            total: `sum_{v != y} exp(z_v - ref)`, [tokens].
            at_target: `exp(z_y - ref)`, [tokens].
            weighted: `sum_{v != y} exp(z_v - ref) slope_v W_v`, [tokens, hidden], or one rank's part of it.
                Overwritten.
            target_slopes: [tokens] or one for all.
        """
        others = weighted.div_(total.clamp(min=torch.finfo(total.dtype).tiny)[:, None])
        return cls(total / (total + at_target), others, target_slopes)

    def hidden_gradients(self, target_rows: Tensor) -> Tensor:
        """`dCE/dh_t`, [tokens, hidden], in the dtype of the sums. `target_rows` is W_y of each token."""
        return self.complement[:, None] * (self.others - self.target_slopes[:, None] * target_rows)

    def unit_factors(self, target_rows: Tensor, activations: Tensor | None) -> Tensor:
        """Factors that scale `(others - slope_y W_y) * h` to the unit vector of u_t, [tokens].

        Args:
            target_rows: W_y of each token.
            activations: h; None for the kind "gradient".
        """
        directions = self.others - self.target_slopes[:, None] * target_rows
        if activations is not None:
            directions *= activations
        norms = directions.norm(dim=-1, dtype=torch.float64)
        return torch.where(self.complement * norms < TOKEN_NORM_FLOOR, 0.0, 1.0 / norms).to(directions.dtype)


def unit_tokens(vectors: Float[Tensor, "tokens hidden"]) -> Float[Tensor, "tokens hidden"]:
    """Each token's vector scaled to unit length; a zero row where its norm is under 1e-30, NaN where it is not finite.

    Example:
        >>> unit_tokens(torch.tensor([[3e-25, 4e-25], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    largest = torch.linalg.vector_norm(vectors, torch.inf, dim=-1, keepdim=True)
    scaled = vectors / largest.clamp(min=torch.finfo(vectors.dtype).tiny)  # a certain token's squares would underflow
    norms = scaled.norm(dim=-1, keepdim=True)
    return scaled.div_(norms).masked_fill_(norms * largest < TOKEN_NORM_FLOOR, 0.0)


def weighted_tokens(vectors: Float[Tensor, "tokens hidden"], weighting: Weighting) -> Float[Tensor, "tokens hidden"]:
    """The vectors to average: u_t, or its direction under weighting "unit"."""
    return unit_tokens(vectors) if weighting == "unit" else vectors
