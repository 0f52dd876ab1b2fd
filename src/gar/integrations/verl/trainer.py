"""verl's synchronous trainer with gradient-aligned rewards.

When verl computes log-probabilities, this class asks the workers for vectors, computes the rewards, and writes them
into the field that verl's advantages read.
"""

# pyright: reportMissingImports=false
from collections.abc import Sequence
from typing import Any

import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from torch import Tensor
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass

from gar.integrations.verl.exchange import MEANS, REQUEST, signal_request
from gar.integrations.verl.settings import AGENT_LOOP_MANAGER, read_settings, read_shaping, template_arguments
from gar.integrations.verl.transfer import (
    anchor_batch,
    clear_advantages,
    fetch_responses,
    read_means,
    require_means,
    write_rewards,
    write_spans,
)
from gar.integrations.watchdog import Watchdog
from gar.models.rope import fixed_context
from gar.reader import Reader
from gar.response import TokenSequence
from gar.step import Step


class GarTrainerSync(PPOTrainerSync):
    """`trainer.v1.trainer_mode=gar_sync`, from verl's whole configuration with a section `gar`."""

    def __init__(self, config: Any):
        plain: Any = OmegaConf.to_container(config, resolve=True)
        self._settings, self._template = read_settings(plain), template_arguments(plain)
        self._shaping = read_shaping(self._settings, plain)
        self._watchdog = Watchdog(self._settings.watchdog)
        self._without_advantage: list[str] = []  # keys of responses in groups of equal rewards
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # otherwise verl uses its asynchronous replay buffer
            config.actor_rollout_ref.rollout.agent.agent_loop_manager_class = AGENT_LOOP_MANAGER
        super().__init__(config)

    def _init_tokenizer(self) -> None:
        super()._init_tokenizer()
        model: Any = omega_conf_to_dataclass(self.config.actor_rollout_ref.model)
        data = self.config.data
        context = fixed_context(model.hf_config, data.max_prompt_length + data.max_response_length)
        self._reader = Reader.from_settings(
            self.tokenizer,
            self._shaping.signal,
            self._settings.verify,
            context=context,
            chat_template_kwargs=self._template,
        )

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        # 1. Read verl's rollout, and find out which responses need a vector.
        keys, partition = list(batch.keys), batch.partition_id
        real = [key for key, tag in zip(keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        responses = fetch_responses(
            real,
            partition,
            self._reader,
            max_response_tokens=self.config.data.max_response_length,
            end_ids=[self.tokenizer.eos_token_id],
            shuffled=self._shaping.shuffles_anchors,
        )
        step, vectors, anchors = Step(self._shaping, responses), None, None
        # 2. Ask the workers for them in verl's own pass, and for those of the anchors in one before it.
        if step.needs_vectors:
            anchors = self._anchor_means(step.anchors)
            write_spans(keys, partition, {real[i]: responses[i].sequence for i in step.members})
            batch.extra_info[REQUEST] = signal_request(self._shaping.signal)
        batch = super()._compute_old_log_prob(batch, metrics)
        batch.extra_info.pop(REQUEST, None)  # the reference pass must not see it
        if anchors is not None:
            fields = tq.kv_batch_get(keys=real, partition_id=partition, select_fields=[MEANS])
            vectors = read_means(fields[MEANS])[step.members]
            anchors = anchors.to(vectors)
        # 3. Shape the rewards, and write them where verl's advantages read them.
        rewards = step.finish(vectors, anchors).rewards
        metrics.update(step.metrics())
        self._watchdog.watch(self.global_steps, step)
        write_rewards(real, partition, rewards)
        equal = self._shaping.without_advantage(rewards, step.group_index).tolist()
        self._without_advantage = [key for key, none in zip(real, equal, strict=True) if none]
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        if self._without_advantage and not self.config.algorithm.use_kl_in_reward:  # with KL the rewards differ
            clear_advantages(self._without_advantage, batch.partition_id)
        return batch

    def _anchor_means(self, anchors: Sequence[TokenSequence]) -> Tensor:
        """Mean vectors of the anchors, from verl's own log-probability pass over them, spread over its ranks."""
        rollout = self.config.actor_rollout_ref.rollout
        multiple = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1  # data-parallel ranks
        if not rollout.log_prob_use_dynamic_bsz:
            multiple *= rollout.log_prob_micro_batch_size_per_gpu
        request = signal_request(self._shaping.signal, keep_fraction=self._shaping.signal.expert_keep_fraction)
        batch = anchor_batch(
            anchors,
            multiple,
            several_position_rows=hasattr(self.processor, "get_rope_index"),  # as verl's `_compute_position_ids`
            calculate_entropy=False,
            compute_loss=False,
            temperature=rollout.temperature,
            **{REQUEST: request},
        )
        return require_means(self.actor_rollout_wg.compute_log_prob(batch))[: len(anchors)]
