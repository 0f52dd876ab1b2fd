"""verl's agent loop, which also sends the response mask to GAR's reward manager. verl's own loop does not."""

# pyright: reportMissingImports=false
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from gar.integrations.verl.exchange import OWN_MASK


class GarAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # the class below @ray.remote
    """verl's worker, which also sends the response mask to the reward worker."""

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        extra = outputs[-1].extra_fields
        extra[OWN_MASK] = outputs[-1].response_mask
        try:
            await super()._compute_score(outputs, kwargs=kwargs)
        finally:
            del extra[OWN_MASK]


class GarAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager, with our workers. `GarTrainerSync` sets it."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(GarAgentLoopWorker)
