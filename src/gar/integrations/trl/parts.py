"""What a run has when its trainer is made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trl import GRPOConfig

from gar.config import RunConfig
from gar.reader import Reader
from gar.records import RolloutRecord
from gar.settings import section_name
from gar.step import Shaping
from gar.types import Problem, ResponseVerifier


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """What `Method.trainer` makes a trainer from.

    Attributes:
        model: The policy. With `adapter`, the trainer adds it.
        tokenizer: The policy's.
        problems: The training problems, as the policy reads them.
        reader: Reads responses and expert solutions.
        verifier: Judges responses.
        settings: Every setting of the run.
        shaping: Method and settings in force, after all rules.
        adapter: A `peft.LoraConfig`, or None.
        arguments: TRL's, made from `settings`.
        on_rollouts: Takes the step of the trainer under way and the records of its responses.
    """

    model: Any
    tokenizer: Any
    problems: Sequence[Problem]
    reader: Reader
    verifier: ResponseVerifier
    settings: RunConfig
    shaping: Shaping
    adapter: Any
    arguments: GRPOConfig
    on_rollouts: Callable[[int, list[RolloutRecord]], None]

    @property
    def section(self) -> Any:
        """The method's own section of the settings."""
        return getattr(self.settings, section_name(self.settings.method))
