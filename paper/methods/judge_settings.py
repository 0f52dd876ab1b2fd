"""Settings of the judge: the section `grad2reward` of a configuration."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from gar import Settings
from gar.data import EMBEDDED_TASKS


class JudgeSettings(Settings):
    """The judge of grad2reward: a copy of the policy from before training."""

    template: str = "auto"
    """Prompt of the judge: default, arithmetic (the embedded task), or a text file with {problem} and {response}. auto:
    arithmetic for the embedded tasks, else default."""
    verdict_true: Annotated[str, Field(min_length=1)] | None = None
    """The continuation that means "correct", leading space included. None: " right" with arithmetic, else " True"."""
    verdict_false: Annotated[str, Field(min_length=1)] | None = None
    """The continuation that means "incorrect". None: " wrong" with arithmetic, else " False"."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """tau: divides the standardized scores of tokens. A large tau spreads the reward evenly."""
    max_batch_tokens: Annotated[int, Field(ge=1)] = 4096
    """Padded tokens per pass. A pass runs forward and backward, and needs the memory of a training step."""

    @model_validator(mode="after")
    def _check_verdicts(self) -> Self:
        if self.verdict_true is not None and self.verdict_true == self.verdict_false:
            raise ValueError(f"verdict_true and verdict_false are the same, {self.verdict_true!r}")
        return self

    def resolved(self, source: str = "") -> "JudgeSettings":
        """These settings without "auto" and None.

        Args:
            source: Where the problems come from (`data.source`).
        """
        template = self.template
        if template == "auto":
            template = "arithmetic" if source in EMBEDDED_TASKS else "default"
        true, false = (" right", " wrong") if template == "arithmetic" else (" True", " False")
        verdicts = {"verdict_true": self.verdict_true or true, "verdict_false": self.verdict_false or false}
        return self.model_copy(update={"template": template, **verdicts})
