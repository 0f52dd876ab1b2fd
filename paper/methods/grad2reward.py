"""Grad2Reward: a judge's gradient shows which tokens led to its verdict "true" [arXiv 2602.01791].

The method's rewards are on the last token. The judge (`judge.py`) spreads as much again over the tokens.
"""

from typing import Any

from gar import ConfigError
from gar.methods import Method, outcome_rewards
from paper.methods.judge_settings import JudgeSettings


def _check(config: Any, args: Any) -> None:
    """Advantages of tokens within their group."""
    if config.advantage.estimator is not None:
        raise ConfigError(
            "advantage.estimator cannot be set: grad2reward normalizes over the tokens of a group. Leave it out."
        )
    if args.scale_rewards != "group":
        raise ConfigError(
            f"trl.scale_rewards is '{args.scale_rewards}', but grad2reward computes its own advantages. Leave it at "
            "group."
        )


def _trainer(parts: Any) -> Any:
    from paper.methods.grad2reward_trainer import Grad2RewardTrainer

    return Grad2RewardTrainer.from_parts(parts, judge=parts.section.resolved(parts.settings.data.source))


GRAD2REWARD = Method(
    name="grad2reward",
    summary="outcome reward spread over tokens by a frozen judge's gradients, normalized over the group's tokens",
    shape=outcome_rewards,
    settings=JudgeSettings,
    trainer=_trainer,
    check=_check,
)
