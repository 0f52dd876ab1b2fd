"""`GARTrainer` with a judge: advantages of single tokens."""

from typing import Any, cast

import torch
from torch import Tensor

from gar import ConfigError
from gar.integrations.trl import GARTrainer, RolloutBatch
from paper.methods.frozen import frozen_copy
from paper.methods.judge import Judge
from paper.methods.judge_settings import JudgeSettings
from paper.methods.token_rewards import group_token_advantages, last_token_rewards, returns_to_go


class Grad2RewardTrainer(GARTrainer):
    """Grad2Reward. Further reward functions are added on the last token.

    Args:
        model: The loaded policy. The judge is a frozen copy of it.
        judge: Prompt and verdicts of the judge.
        **kwargs: As in `GARTrainer`.
    """

    def __init__(self, model: Any, *, judge: JudgeSettings | None = None, **kwargs: Any):
        if isinstance(model, str):
            raise ConfigError(f"grad2reward keeps a copy of the initial policy: give the loaded model, got '{model}'")
        tokenizer, tags = kwargs["processing_class"], kwargs["verifier"].tags
        self._judge = Judge(frozen_copy(model), tokenizer, judge or JudgeSettings(), tags=tags)
        kwargs.setdefault("method", "grad2reward")
        super().__init__(model, **kwargs)
        self._judge.to(self.accelerator.device)

    def token_advantages(self, batch: RolloutBatch, inputs: dict[str, Any], in_loss: Tensor) -> Tensor:
        """Advantages from the judge's rewards of tokens, normalized over groups on all ranks."""
        mask, shaped, shaping = in_loss.bool(), batch.step.shaped, self.shaping
        judged = self._judge.token_rewards(
            [problem.prompt for problem in batch.problems],
            [response.sequence.ids for response in batch.responses],
            shaped.outcomes[batch.step.here].to(mask.device),
            shaped.penalties[batch.step.here].to(mask.device),
            mask,
        )
        last = last_token_rewards(batch.further_rewards[batch.step.here].to(mask.device), mask)
        rewards = judged.rewards * float(self.reward_weights[0]) + last
        agreement = (judged.log_odds > 0).double().where(judged.log_odds.isfinite(), torch.nan)
        self.log_mean("judge_effective_tokens", judged.effective_tokens)
        self.log_mean("judge_agreement", agreement)
        values, masks = (
            cast(Tensor, self.accelerator.gather(self.accelerator.pad_across_processes(tensor, dim=1))).cpu()
            for tensor in (returns_to_go(rewards, mask), mask)
        )
        advantages = group_token_advantages(
            values.double(),
            masks.bool(),
            batch.step.group_index,
            ddof=shaping.ddof,
            eps=shaping.eps,
            min_std=shaping.advantage.min_std,
        )
        return advantages[batch.step.here, : mask.shape[1]]
