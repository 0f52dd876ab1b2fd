"""Supervised fine-tuning on the expert solutions, alone or as a first phase, or on the policy's own solutions."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from gar import ConfigError, Settings
from gar.methods import Method, outcome_rewards

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs")


class SFTGRPOSettings(Settings):
    """sft-grpo: the supervised phase."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the optimizer steps that are supervised."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Learning rate of the supervised steps. None: trl.learning_rate."""


class RFTSettings(Settings):
    """rft: what is trained on."""

    num_samples: Annotated[int, Field(ge=1)] = 4
    """Responses of the initial policy to each problem. The correct ones are trained on."""


def _reads(sections: Mapping[str, Any]) -> list[str]:
    """Prompts and lengths, and what the preflight samples with."""
    preflight = _SAMPLING if sections["preflight"].mode != "off" else ()
    return [f"trl.{name}" for name in ("chat_template_kwargs", "max_completion_length", *preflight)]


def _reads_rft(sections: Mapping[str, Any]) -> list[str]:
    """As sft, and what samples its own solutions."""
    return [*_reads(sections), "trl.temperature", "trl.top_p", "rft.num_samples"]


def _check(config: Any, args: Any) -> None:
    if args.max_steps < 2:
        raise ConfigError(
            f"trl.max_steps is {args.max_steps}, but {config.method} needs their number. Set at least 2 steps."
        )


def _supervised(parts: Any, num_steps: int, learning_rate: float | None = None) -> Any:
    from paper.methods.supervised_trainer import SupervisedTrainer

    args = copy.copy(parts.arguments)
    args.learning_rate = learning_rate or args.learning_rate
    return SupervisedTrainer(
        parts.model,
        problems=parts.problems,
        reader=parts.reader,
        args=args,
        num_steps=num_steps,
        processing_class=parts.tokenizer,
        peft_config=parts.adapter,
    )


def _sft(parts: Any) -> Any:
    return _supervised(parts, parts.arguments.max_steps)


def _sft_grpo(parts: Any) -> Iterator[Any]:
    from gar.integrations.trl import GARTrainer

    num_steps = max(1, round(parts.section.share * parts.arguments.max_steps))
    supervised = _supervised(parts, num_steps, parts.section.learning_rate)
    yield supervised
    args = copy.copy(parts.arguments)
    args.max_steps -= supervised.state.global_step
    yield GARTrainer.from_parts(parts, model=supervised.plain_model(), args=args, method="grpo", peft_config=None)


def _rft(parts: Any) -> Any:
    from paper.methods.rejection import own_solutions

    return _sft(replace(parts, problems=own_solutions(parts, parts.section.num_samples)))


SFT = Method(
    name="sft",
    summary="supervised fine-tuning on the expert solutions, by TRL's SFTTrainer; no responses",
    shape=outcome_rewards,
    samples=False,
    trainer=_sft,
    check=_check,
    reads=_reads,
    cannot_resume="its supervised trainer writes no checkpoints.",
)

SFT_GRPO = Method(
    name="sft-grpo",
    summary="sft for the first half of the steps, then grpo",
    settings=SFTGRPOSettings,
    shape=outcome_rewards,
    samples=False,
    trainer=_sft_grpo,
    check=_check,
    cannot_resume="it has two trainers, and neither resumes a checkpoint of the other.",
)

RFT = Method(
    name="rft",
    summary="rejection sampling fine-tuning: sft on the initial policy's own correct responses",
    shape=outcome_rewards,
    settings=RFTSettings,
    samples=False,
    trainer=_rft,
    check=_check,
    reads=_reads_rft,
    cannot_resume=SFT.cannot_resume,
)
