"""What a method with its own trainer makes that from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gar.config import RunConfig
from gar.data.problem_set import ProblemSet
from gar.methods.plan import Shaping
from gar.reader import Reader
from gar.records import RolloutRecord
from gar.settings import section_name
from gar.types import ResponseVerifier

if TYPE_CHECKING:  # importing it takes seconds
    from trl import GRPOConfig


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
        on_rollouts: Called with the current trainer's step and the records of its responses.
    """

    model: Any
    tokenizer: Any
    problems: ProblemSet
    reader: Reader
    verifier: ResponseVerifier
    settings: RunConfig
    shaping: Shaping
    adapter: Any
    arguments: "GRPOConfig"
    on_rollouts: Callable[[int, list[RolloutRecord]], None]

    @property
    def section(self) -> Any:
        """The method's own section of the settings."""
        return getattr(self.settings, section_name(self.settings.method))
