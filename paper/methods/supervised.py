"""Supervised fine-tuning on the expert solutions, alone or as a first phase."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from gar import ConfigError
from gar.methods import Method, outcome_rewards

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs")


def _reads(sections: Mapping[str, Any]) -> list[str]:
    """Prompts and lengths, and what the preflight samples with."""
    preflight = _SAMPLING if sections["preflight"].mode != "off" else ()
    return [f"trl.{name}" for name in ("chat_template_kwargs", "max_completion_length", *preflight)]


def _check(config: Any, args: Any) -> None:
    if args.max_steps < 2:
        raise ConfigError(
            f"trl.max_steps is {args.max_steps}, but {config.method} needs their number. Set at least 2 steps."
        )


def _supervised(parts: Any, num_steps: int) -> Any:
    from paper.methods.supervised_trainer import SupervisedTrainer

    return SupervisedTrainer(
        parts.model,
        problems=parts.problems,
        reader=parts.reader,
        args=parts.arguments,
        num_steps=num_steps,
        processing_class=parts.tokenizer,
        callbacks=parts.callbacks,
        peft_config=parts.adapter,
    )


def _sft(parts: Any) -> Any:
    return _supervised(parts, parts.arguments.max_steps)


def _sft_grpo(parts: Any) -> Iterator[Any]:
    from gar.integrations.trl import GARTrainer

    supervised = _supervised(parts, round(0.5 * parts.arguments.max_steps))
    yield supervised
    args = copy.copy(parts.arguments)
    args.max_steps -= supervised.state.global_step
    yield GARTrainer.from_parts(parts, model=supervised.plain_model(), args=args, method="grpo", peft_config=None)


SFT = Method(
    name="sft",
    summary="supervised fine-tuning on the expert solutions, by TRL's SFTTrainer; no responses",
    shape=outcome_rewards,
    trains_on_experts=True,
    samples=False,
    trainer=_sft,
    check=_check,
    reads=_reads,
    cannot_resume="its supervised trainer writes no checkpoints.",
)

SFT_GRPO = Method(
    name="sft-grpo",
    summary="sft for the first half of the steps, then grpo",
    shape=outcome_rewards,
    trains_on_experts=True,
    samples=False,
    trainer=_sft_grpo,
    check=_check,
    cannot_resume="it has two trainers, and neither resumes a checkpoint of the other.",
)
