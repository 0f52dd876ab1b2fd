"""GAR inside TRL: the trainer, the parts of a run from which a method makes its own trainer, and helpers."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.integrations.trl.arguments import TRL, check_batch, trl_arguments
    from gar.integrations.trl.callbacks import StepTimer
    from gar.integrations.trl.rollouts import RolloutBatch
    from gar.integrations.trl.trainer import GARTrainer
    from gar.integrations.watchdog import Watchdog
    from gar.methods.parts import RunParts
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "TRL",
    "GARTrainer",
    "RolloutBatch",
    "RunParts",
    "StepTimer",
    "Watchdog",
    "check_batch",
    "trl_arguments",
]
