"""verl's reward manager that asks GAR's verifier: `reward.reward_manager.name=gar`.

It runs beside the rollout, in verl's reward workers. What it says of a response travels with it to the trainer, which
adds the bonus; until then, and in validation, the reward is the outcome alone.
"""

# pyright: reportMissingImports=false
from typing import Any

import torch
from omegaconf import OmegaConf
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from gar.integrations.verl.settings import read_settings
from gar.methods import METHODS, ScoredBatch
from gar.spans import ends_in_thinking_tag, special_ids, token_pieces, without_trailing_special
from gar.types import Verdict
from gar.verify import Verifier


class GarRewardManager(RewardManagerBase):
    """Base reward or penalty for each response, with the verdict.

    Args:
        config: verl's whole configuration.
        tokenizer: The policy's.
        compute_score: verl's own scoring function, which is not called.
        **_: What verl hands to every reward manager.
    """

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any):
        super().__init__(config, tokenizer, compute_score)
        settings = read_settings(OmegaConf.to_container(config, resolve=True))
        verify = settings.verify
        self._reward = settings.reward
        self._tags = verify.tags.as_tags()
        self._pieces = token_pieces(tokenizer)
        self._special = special_ids(tokenizer, self._tags)
        self._verifier = Verifier.from_settings(verify)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """One response's reward, and under `reward_extra_info` what the trainer and verl's validation read.

        Args:
            data: verl's `DataProto` of a trajectory, whose last output counts.
        """
        item = data[-1:][0]
        facts = item.non_tensor_batch
        prompt_ids = item.batch["prompts"][: int(facts["prompt_len"])].tolist()
        ids = item.batch["responses"][: int(facts["response_len"])].tolist()
        gold = str(facts["reward_model"]["ground_truth"])
        verdict = await self.loop.run_in_executor(None, self._verdict, prompt_ids, ids, gold)
        known = ScoredBatch(
            verified=torch.tensor([verdict.verified]),
            well_formatted=torch.tensor([verdict.well_formatted]),
            group_index=torch.tensor([0]),
            alignment=torch.tensor([torch.nan], dtype=torch.float64),
            scored=torch.tensor([False]),
        )
        return {
            "reward_score": float(METHODS["grpo"].shape(known, self._reward).rewards[0]),
            "reward_extra_info": {
                "acc": float(verdict.verified),
                "verified": verdict.verified,
                "well_formatted": verdict.well_formatted,
                "status": verdict.status.value,
            },
        }

    def _verdict(self, prompt_ids: list[int], ids: list[int], gold: str) -> Verdict:
        body = without_trailing_special(ids, self._special)
        text = self.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        prefilled = ends_in_thinking_tag(prompt_ids, self._pieces, self._tags)
        prompt = self.tokenizer.decode(prompt_ids)
        return self._verifier.verify([text], [gold], prefilled_think=prefilled, prompts=[prompt])[0]
