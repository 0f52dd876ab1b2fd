"""Gradient-Aligned Reward (GAR): dense rewards for reinforcement learning on verifiable problems."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gar.config import RunConfig
    from gar.errors import ConfigError, DataError, GarError, ModelError, RecordError, UsageError
    from gar.integrations.trl import GARTrainer
    from gar.scoring import GarScorer, ResponseGroup, ResponseScore
    from gar.settings import AdvantageSettings, ModelSettings, RewardSettings, Settings, SignalSettings, VerifySettings
    from gar.spans import SequenceReader, TokenSequence
    from gar.types import Anchor, Problem, Prompt, ResponseVerifier, Tags, Verdict
    from gar.verify import Verifier

__version__ = "0.1.0"
__all__ = [
    "AdvantageSettings",
    "Anchor",
    "ConfigError",
    "DataError",
    "GARTrainer",
    "GarError",
    "GarScorer",
    "ModelError",
    "ModelSettings",
    "Problem",
    "Prompt",
    "RecordError",
    "ResponseGroup",
    "ResponseScore",
    "ResponseVerifier",
    "RewardSettings",
    "RunConfig",
    "SequenceReader",
    "Settings",
    "SignalSettings",
    "Tags",
    "TokenSequence",
    "UsageError",
    "Verdict",
    "Verifier",
    "VerifySettings",
    "__version__",
]
_MODULES = {
    "gar.config": "RunConfig",
    "gar.errors": "ConfigError DataError GarError ModelError RecordError UsageError",
    "gar.integrations.trl": "GARTrainer",
    "gar.scoring": "GarScorer ResponseGroup ResponseScore",
    "gar.settings": "AdvantageSettings ModelSettings RewardSettings Settings SignalSettings VerifySettings",
    "gar.spans": "SequenceReader TokenSequence",
    "gar.types": "Anchor Problem Prompt ResponseVerifier Tags Verdict",
    "gar.verify": "Verifier",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when first asked for."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'gar' has no attribute '{name}'")
