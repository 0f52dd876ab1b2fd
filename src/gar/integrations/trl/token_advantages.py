"""Advantages of single tokens, [responses, tokens], from a judge's rewards."""

from typing import Any, cast

import torch
from torch import Tensor

from gar.core import group_token_advantages, last_token_rewards, returns_to_go
from gar.integrations.trl.rollouts import RolloutBatch
from gar.scoring.judge import Judge
from gar.shaping import Shaping


def judged_advantages(
    trainer: Any, judge: Judge, batch: RolloutBatch, further: Tensor, in_loss: Tensor, shaping: Shaping
) -> Tensor:
    """Advantages of this rank from a judge's rewards of tokens, normalised over groups on all ranks.

    Args:
        trainer: A `GARTrainer`, whose ranks and metrics are used.
        judge: The frozen judge.
        batch: The responses of this rank.
        further: Rewards of further reward functions, of all ranks. They say nothing of single tokens: theirs is the
            reward of the last one, as the outcome is.
        in_loss: 1 for the tokens in the loss, [responses, tokens].
        shaping: What is trained.
    """
    mask, shaped = in_loss.bool(), batch.rewarded.shaped
    judged = judge.token_rewards(
        [problem.prompt for problem in batch.problems],
        [sequence.ids for sequence in batch.sequences],
        shaped.outcomes[batch.here].to(mask.device),
        shaped.penalties[batch.here].to(mask.device),
        mask,
    )
    last = last_token_rewards(further[batch.here].to(mask.device), mask)
    rewards = judged.rewards * float(trainer.reward_weights[0]) + last
    agreement = (judged.log_odds > 0).double().where(judged.log_odds.isfinite(), torch.nan)
    trainer.log_mean("judge_effective_tokens", judged.effective_tokens)
    trainer.log_mean("judge_agreement", agreement)
    values, masks = (
        trainer._gather(cast(Tensor, trainer.accelerator.pad_across_processes(tensor, dim=1)))
        for tensor in (returns_to_go(rewards, mask), mask)
    )
    advantages = group_token_advantages(
        values.double(),
        masks.bool(),
        batch.rewarded.batch.group_index,
        ddof=shaping.ddof,
        eps=shaping.eps,
        std_floor=shaping.advantage.std_floor,
    )
    return advantages[batch.here, : mask.shape[1]]
