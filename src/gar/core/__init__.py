"""Arithmetic: tensors in, tensors out. No models, text, files, configuration or logging."""

from gar.core.advantages import group_advantages, reinforce_plus_plus_advantages
from gar.core.alignment import BestAlignment, alignment_scores, best_alignment_scores
from gar.core.arguments import Budget, Head, ScoredTokens, Signal
from gar.core.groups import group_deviations, group_sizes, group_standard_deviations, shuffled_groups
from gar.core.head import cpu_has_bfloat16_products
from gar.core.novelty import novelty_rewards, novelty_scores
from gar.core.policy_losses import maspo_weights
from gar.core.ranks import Ranks, VocabShard, gather_tokens
from gar.core.rewards import gradient_aligned_bonuses
from gar.core.vectors import NORM_FLOOR, alignment_shares, gradient_activation_means, response_means, unit_rows

__all__ = [
    "NORM_FLOOR",
    "BestAlignment",
    "Budget",
    "Head",
    "Ranks",
    "ScoredTokens",
    "Signal",
    "VocabShard",
    "alignment_scores",
    "alignment_shares",
    "best_alignment_scores",
    "cpu_has_bfloat16_products",
    "gather_tokens",
    "gradient_activation_means",
    "gradient_aligned_bonuses",
    "group_advantages",
    "group_deviations",
    "group_sizes",
    "group_standard_deviations",
    "maspo_weights",
    "novelty_rewards",
    "novelty_scores",
    "reinforce_plus_plus_advantages",
    "response_means",
    "shuffled_groups",
    "unit_rows",
]
