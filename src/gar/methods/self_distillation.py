"""The policy as its own teacher, with the expert solution in its prompt: TRL's experimental SDFT and SDPO."""

import sys
from typing import Any

from gar.methods.base import Method, outcome_rewards

_COMMON: dict[str, Any] = {
    "save_strategy": "no",  # a moving teacher is in no checkpoint of TRL's
    "max_prompt_length": None,  # TRL would cut off the beginning
}

SDFT = Method(
    name="sdft",
    summary="self-distillation from the initial policy, which sees the expert solution [arXiv 2601.19897]",
    shape=outcome_rewards,
    trl=_COMMON,
    self_distillation="sdft",
)

SDPO = Method(
    name="sdpo",
    summary="self-distillation from a moving average of the policy, which sees the expert solution [arXiv 2601.20802]",
    shape=outcome_rewards,
    trl={
        **_COMMON,
        "max_reprompt_len": sys.maxsize,
        # The expert solution takes the place of an environment's feedback and of the group's correct responses.
        "include_environment_feedback": True,
        "use_successful_as_teacher": False,
        "beta": 0.0,  # TRL's trainer takes it and never reads it
    },
    self_distillation="sdpo",
)
