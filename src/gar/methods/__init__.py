"""Methods: one file each, and the dict that names them."""

from gar.methods.base import Method, ScoredBatch, ShapedRewards, eligible_responses
from gar.methods.controls import ALIGNMENT_ONLY, ANCHOR_RANDOM, ANCHOR_SHUFFLED, HIDDEN_COSINE, LENGTH, TEXT_SIMILARITY
from gar.methods.g2rl import G2RL
from gar.methods.gar import GAR_GRPO, GAR_REINFORCE_PP
from gar.methods.grad2reward import GRAD2REWARD
from gar.methods.grpo import DAPO, DR_GRPO, GRPO
from gar.methods.maspo import MASPO
from gar.methods.reinforce_pp import REINFORCE_PP, REINFORCE_PP_BASELINE
from gar.methods.settings import check_settings, resolve_signal, unread_settings

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        GRPO, DR_GRPO, DAPO, REINFORCE_PP, REINFORCE_PP_BASELINE, MASPO,
        GAR_GRPO, GAR_REINFORCE_PP, G2RL, GRAD2REWARD,
        ANCHOR_SHUFFLED, ANCHOR_RANDOM, HIDDEN_COSINE, TEXT_SIMILARITY, LENGTH, ALIGNMENT_ONLY,
    )
}  # fmt: skip

__all__ = [
    "METHODS",
    "Method",
    "ScoredBatch",
    "ShapedRewards",
    "check_settings",
    "eligible_responses",
    "resolve_signal",
    "unread_settings",
]
