"""GAR inside TRL: the trainer, what a method makes its own from, and helpers for it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gar.integrations.trl.arguments import trl_arguments
    from gar.integrations.trl.metrics import StepSum, StepTimer
    from gar.integrations.trl.parts import RunParts
    from gar.integrations.trl.refusals import TRL, check_batch
    from gar.integrations.trl.rollouts import RolloutBatch
    from gar.integrations.trl.trainer import GARTrainer

__all__ = [
    "TRL",
    "GARTrainer",
    "RolloutBatch",
    "RunParts",
    "StepSum",
    "StepTimer",
    "check_batch",
    "trl_arguments",
]
_MODULES = {
    "gar.integrations.trl.arguments": "trl_arguments",
    "gar.integrations.trl.metrics": "StepSum StepTimer",
    "gar.integrations.trl.parts": "RunParts",
    "gar.integrations.trl.refusals": "TRL check_batch",
    "gar.integrations.trl.rollouts": "RolloutBatch",
    "gar.integrations.trl.trainer": "GARTrainer",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when first asked for."""
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'gar.integrations.trl' has no attribute '{name}'")
