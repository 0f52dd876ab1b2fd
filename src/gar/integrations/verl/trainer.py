"""verl's synchronous trainer with rewards that see the policy's own gradients.

verl samples, computes log-probabilities, normalises and updates. In between, where log-probabilities are computed, this
class asks the workers for the vectors, has the rewards formed, and writes them where verl's advantages read them.
"""

# pyright: reportMissingImports=false
from collections.abc import Sequence
from itertools import compress
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from torch import Tensor
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from gar.errors import ConfigError
from gar.integrations.verl.exchange import MEANS, REQUEST, SignalRequest
from gar.integrations.verl.settings import check_supported, read_settings
from gar.integrations.verl.table import RewardTable, SequenceReader
from gar.integrations.verl.transfer import (
    anchor_batch,
    read_means,
    read_rows,
    require_means,
    write_rewards,
    write_spans,
)
from gar.spans import TokenSequence


class GarTrainerSync(PPOTrainerSync):
    """`trainer.v1.trainer_mode=gar_sync`.

    Args:
        config: verl's whole configuration, with a section `gar`.

    Raises:
        ConfigError: A setting is wrong, or a flag of verl under which GAR's rewards would be wrong.
    """

    def __init__(self, config: Any):
        plain: Any = OmegaConf.to_container(config, resolve=True)
        self._settings = read_settings(plain)
        check_supported(plain, self._settings)
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # under any other name verl takes its asynchronous replay buffer
        super().__init__(config)

    def _init_tokenizer(self) -> None:
        super()._init_tokenizer()
        if self.processor is not None:
            raise ConfigError("the model comes with a processor of images or sound, and GAR works on text")
        self._reader = SequenceReader(self.tokenizer, self._settings)

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        keys, partition = list(batch.keys), batch.partition_id
        real = [key for key, tag in zip(keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        table = RewardTable(read_rows(real, partition), self._reader, self._settings)
        asks = bool(table.anchor_sequences)
        anchor_means = means = torch.zeros(0, 0)
        if asks:
            anchor_means = self._anchor_means(table.anchor_sequences)
            write_spans(keys, partition, dict(compress(zip(real, table.sequences, strict=True), table.needed.tolist())))
            batch.extra_info[REQUEST] = SignalRequest.from_settings(self._settings.signal)
        batch = super()._compute_old_log_prob(batch, metrics)
        batch.extra_info.pop(REQUEST, None)  # the reference pass must not hear it
        if asks:
            found = tq.kv_batch_get(keys=real, partition_id=partition, select_fields=[MEANS])
            means = read_means(found[MEANS])
        shaped, logged = table.shape(means, anchor_means)
        metrics.update(logged)
        write_rewards(real, partition, shaped.rewards)
        return batch

    def _anchor_means(self, anchors: Sequence[TokenSequence]) -> Tensor:
        """Mean vectors of the anchors, from verl's own log-probability pass over them, spread over its ranks."""
        rollout = self.config.actor_rollout_ref.rollout
        multiple = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1  # data-parallel ranks
        if not rollout.log_prob_use_dynamic_bsz:
            multiple *= rollout.log_prob_micro_batch_size_per_gpu
        request = SignalRequest.from_settings(
            self._settings.signal, keep_fraction=self._settings.signal.anchor_keep_fraction
        )
        batch = anchor_batch(
            anchors, multiple, calculate_entropy=False, compute_loss=False, temperature=rollout.temperature,
            **{REQUEST: request},
        )  # fmt: skip
        return require_means(self.actor_rollout_wg.compute_log_prob(batch))[: len(anchors)]
