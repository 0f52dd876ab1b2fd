"""Methods that train on the expert solutions themselves, where GAR only compares responses with them."""

from collections.abc import Mapping
from typing import Any

from gar.methods.base import Method, outcome_rewards

_NO_CHECKPOINTS: dict[str, Any] = {"save_strategy": "no"}
"""Two trainers in a row: no checkpoint of one could be resumed by the other."""

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs")


def _reads(sections: Mapping[str, Any]) -> list[str]:
    """Prompts and lengths, and what the preflight samples with."""
    preflight = _SAMPLING if sections["preflight"].mode != "off" else ()
    return [f"trl.{name}" for name in ("chat_template_kwargs", "max_completion_length", *preflight)]


LUFFY = Method(
    name="luffy",
    summary="grpo with the expert solution as an off-policy member of its group [arXiv 2504.14945]",
    shape=outcome_rewards,
    expert_loss="member",
)

CHORD = Method(
    name="chord",
    summary="(1 - mu) grpo + mu imitation of expert solutions, mu falling: CHORD-mu [arXiv 2508.11408]",
    shape=outcome_rewards,
    expert_loss="mixture",
)

SFT = Method(
    name="sft",
    summary="supervised fine-tuning on the expert solutions, by TRL's SFTTrainer; no responses",
    shape=outcome_rewards,
    trl=_NO_CHECKPOINTS,
    supervised_fraction=1.0,
    reads=_reads,
)

SFT_GRPO = Method(
    name="sft-grpo",
    summary="sft for the first half of the steps, then grpo",
    shape=outcome_rewards,
    trl=_NO_CHECKPOINTS,
    supervised_fraction=0.5,
)
