"""LUFFY and CHORD: grpo with the expert solutions themselves in the loss."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from gar import ConfigError, Settings
from gar.methods import Method, outcome_rewards


class ChordSettings(Settings):
    """chord: the weight mu of imitation, which falls along half a cosine."""

    peak: Annotated[float, Field(ge=0, le=1)] = 0.9
    """mu at the first step."""
    valley: Annotated[float, Field(ge=0, le=1)] = 0.05
    """mu at the end of its fall, and after it."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the optimizer steps over which it falls."""

    @model_validator(mode="after")
    def _check_fall(self) -> Self:
        if self.valley > self.peak:
            raise ValueError(f"valley must be at most peak, got {self.valley} and {self.peak}")
        return self


def _check(config: Any, args: Any) -> None:
    """The loss on expert solutions is a mean per solution, which goes with a mean per response."""
    if args.loss_type != "grpo":
        raise ConfigError(
            f"trl.loss_type is '{args.loss_type}', but {config.method} goes with 'grpo', a mean per response. Set it "
            "to grpo."
        )
    if args.world_size > 1:
        raise ConfigError(f"{config.method} trains in one process, got {args.world_size}. Start it without a launcher.")


def _check_luffy(config: Any, args: Any) -> None:
    _check(config, args)
    if args.scale_rewards not in ("group", "none"):
        raise ConfigError(
            f"trl.scale_rewards is '{args.scale_rewards}', but luffy normalizes groups with their expert solution. Use "
            "group or none."
        )


def _luffy(parts: Any) -> Any:
    from paper.methods.expert_trainer import LuffyTrainer, check_solutions

    check_solutions(parts)
    return LuffyTrainer.from_parts(parts)


def _chord(parts: Any) -> Any:
    from paper.methods.expert_trainer import ChordTrainer, check_solutions

    check_solutions(parts)
    return ChordTrainer.from_parts(parts, fall=parts.section)


LUFFY = Method(
    name="luffy",
    summary="grpo with the expert solution as an off-policy member of its group [arXiv 2504.14945]",
    shape=outcome_rewards,
    trainer=_luffy,
    check=_check_luffy,
)

CHORD = Method(
    name="chord",
    summary="(1 - mu) grpo + mu imitation of expert solutions, mu falling: CHORD-mu [arXiv 2508.11408]",
    shape=outcome_rewards,
    settings=ChordSettings,
    trainer=_chord,
    check=_check,
)
