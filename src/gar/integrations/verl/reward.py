"""verl's reward manager with GAR's verifier: `reward.reward_manager.name=gar`.

It runs in verl's reward workers and sends its verdict to the trainer, which adds the bonus. Validation has no bonus.
"""

# pyright: reportMissingImports=false
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from gar.errors import ConfigError
from gar.integrations.verl.exchange import OWN_MASK
from gar.integrations.verl.settings import AGENT_LOOP_MANAGER, FILTER_METRIC, read_settings, read_shaping
from gar.reader import Reader, judge
from gar.scoring.filtering import signal_key
from gar.step import Step
from gar.verify import Verifier


class GarRewardManager(RewardManagerBase):
    """Base reward or penalty for each response, with the verdict. verl's own scoring function is not called."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any):
        super().__init__(config, tokenizer, compute_score)
        settings = read_settings(OmegaConf.to_container(config, resolve=True))
        self._shaping = read_shaping(settings, quiet=True)
        self._reader = Reader.from_settings(tokenizer, self._shaping.signal, settings.verify)
        self._verifier = Verifier.from_settings(settings.verify)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Reward and verdict of the last output of verl's `DataProto`, for the trainer and validation."""
        item = data[-1:][0]
        facts = item.non_tensor_batch
        prompt_ids = item.batch["prompts"][: int(facts["prompt_len"])].tolist()
        ids = item.batch["responses"][: int(facts["response_len"])].tolist()
        problem = self._reader.problem(prompt_ids, facts["reward_model"]["ground_truth"], facts.get("extra_info"))
        response = self._reader.read(prompt_ids, ids, mask=_own_mask(facts["tool_extra_fields"]))
        judged = await self.loop.run_in_executor(None, judge, self._verifier, [response], [problem])
        verdict = judged[0].verdict
        anchors = self._reader.carried_anchors(prompt_ids, facts.get("extra_info"))
        key = signal_key(self._shaping, judged[0], has_anchor=bool(anchors.usable))
        step = Step(self._shaping.outcome_alone(), judged)
        return {
            "reward_score": float(step.finish().rewards[0]),
            "reward_extra_info": {
                "acc": float(step.eligible[0]),  # what `gar eval` counts as correct. verl's validation shows its mean
                "verified": verdict.verified,
                "well_formatted": verdict.well_formatted,
                "status": verdict.status.value,
                FILTER_METRIC: str(key),  # verl averages numbers in its validation
            },
        }


def _own_mask(fields: Mapping[str, Any]) -> list[int]:
    if OWN_MASK not in fields:
        raise ConfigError(
            "a response comes without the mask of the policy's own tokens, so that a tool's answer would be graded: "
            f"expected actor_rollout_ref.rollout.agent.agent_loop_manager_class {AGENT_LOOP_MANAGER}, which "
            "trainer.v1.trainer_mode=gar_sync sets"
        )
    return fields[OWN_MASK]
