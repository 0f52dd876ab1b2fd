"""Gradient-Aligned Reward (GAR): dense rewards for reinforcement learning on verifiable problems."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.config import RunConfig, make_config, read_config
    from gar.errors import ConfigError, DataError, GarError, ModelError, RecordError, UsageError
    from gar.integrations.trl import GARTrainer
    from gar.reader import Reader
    from gar.response import TokenSequence
    from gar.scoring import GARScorer, ResponseGroup, ResponseScore
    from gar.settings import (
        AdvantageSettings,
        DataSettings,
        ModelSettings,
        RewardSettings,
        Settings,
        SignalSettings,
        VerifySettings,
        WatchdogSettings,
    )
    from gar.types import Anchor, Problem, Prompt, ResponseVerifier, Status, Tags, Verdict
    from gar.verify import Verifier
else:
    __getattr__, __dir__ = lazy_names(__name__)

__version__ = "0.1.0"
__all__ = [
    "AdvantageSettings",
    "Anchor",
    "ConfigError",
    "DataError",
    "DataSettings",
    "GARScorer",
    "GARTrainer",
    "GarError",
    "ModelError",
    "ModelSettings",
    "Problem",
    "Prompt",
    "Reader",
    "RecordError",
    "ResponseGroup",
    "ResponseScore",
    "ResponseVerifier",
    "RewardSettings",
    "RunConfig",
    "Settings",
    "SignalSettings",
    "Status",
    "Tags",
    "TokenSequence",
    "UsageError",
    "Verdict",
    "Verifier",
    "VerifySettings",
    "WatchdogSettings",
    "__version__",
    "make_config",
    "read_config",
]
