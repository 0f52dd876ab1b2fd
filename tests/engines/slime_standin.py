"""slime's interfaces, as far as the plugin touches them, with the signatures and the layout of slime 0.3.1.

Enough to run the plugin without slime. `tests/engines/megatron/test_slime_checkout.py` runs it on slime itself.
"""

import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor


@dataclass
class Sample:
    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str = ""
    tokens: list[int] = field(default_factory=list)
    multimodal_inputs: dict | None = None
    multimodal_train_inputs: dict | None = None
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | None = None
    loss_mask: list[int] | None = None
    remove_sample: bool = False
    metadata: dict = field(default_factory=dict)


class RolloutManager:
    """The converter reads three attributes of the manager."""

    def _convert_samples_to_train_data(self, samples: list[Sample]) -> dict[str, Any]:
        if self.custom_convert_samples_to_train_data_func is not None:
            return self.custom_convert_samples_to_train_data_func(self.args, samples)
        assert self.custom_reward_post_process_func is None
        for sample in samples:
            sample.loss_mask = sample.loss_mask or [1] * sample.response_length
            if sample.remove_sample:
                sample.loss_mask = [0] * sample.response_length
        return {
            "tokens": [sample.tokens for sample in samples],
            "response_lengths": [sample.response_length for sample in samples],
            "rewards": [sample.reward for sample in samples],
            "raw_reward": [sample.reward for sample in samples],
            "loss_masks": [sample.loss_mask for sample in samples],
            "rollout_ids": [sample.index if sample.rollout_id is None else sample.rollout_id for sample in samples],
        }


def split_by_data_parallel_rank(data: dict[str, Any], num_ranks: int) -> list[dict[str, Any]]:
    """Deal the samples to the ranks in turn, so that groups lie on several. Unknown keys do not travel."""
    lists = ("tokens", "response_lengths", "rewards", "loss_masks", "rollout_ids", "rollout_log_probs", "prompt")
    shares = []
    for rank in range(num_ranks):
        chosen = range(rank, len(data["tokens"]), num_ranks)
        share = {key: [data[key][i] for i in chosen] for key in lists if key in data}
        share["tokens"] = [torch.tensor(ids) for ids in share["tokens"]]
        share["loss_masks"] = [torch.tensor(mask, dtype=torch.int) for mask in share["loss_masks"]]
        share["total_lengths"] = [len(ids) for ids in share["tokens"]]
        places = list(range(len(chosen)))
        share["micro_batch_indices"] = [places[i : i + 7] for i in places[::7]]
        second = len(share["micro_batch_indices"]) // 2
        share["num_microbatches"] = [len(share["micro_batch_indices"]) - second, second]  # two updates per rollout
        shares.append(share)
    return shares


class DataIterator:
    def __init__(self, rollout_data: dict[str, Any], micro_batch_indices: list[list[int]]) -> None:
        self.rollout_data = rollout_data
        self.micro_batch_indices = micro_batch_indices
        self.offset = 0

    def get_next(self, keys: Sequence[str]) -> dict[str, Any]:
        chosen = self.micro_batch_indices[self.offset]
        self.offset += 1
        return {key: [self.rollout_data[key][i] for i in chosen] for key in keys if key in self.rollout_data}

    def reset(self) -> "DataIterator":
        self.offset = 0
        return self


@torch.no_grad()
def forward_only(
    f: Callable[..., Any],
    args: Any,
    model: Sequence[Any],
    data_iterator: Sequence[DataIterator],
    num_microbatches: Sequence[int],
    store_prefix: str = "",
    use_rollout_top_p_replay: bool = False,
) -> dict[str, list[Tensor]]:
    from megatron.core import mpu
    from megatron.core.pipeline_parallel import get_forward_backward_func

    for iterator in data_iterator:
        iterator.reset()

    def forward_step(iterator: DataIterator, chunk: Any, return_schedule_plan: bool = False) -> tuple[Tensor, Any]:
        batch = iterator.get_next(["tokens", "loss_masks", "total_lengths", "response_lengths"])
        tokens, packed = _packed(batch["tokens"], args.data_pad_size_multiplier, mpu)
        output = chunk(
            input_ids=tokens, position_ids=None, attention_mask=None, labels=None, packed_seq_params=packed,
            loss_mask=torch.ones_like(tokens),
        )  # fmt: skip
        lengths = {name: batch[name] for name in ("total_lengths", "response_lengths")}
        return output, partial(f, args=args, unconcat_tokens=batch["tokens"], with_entropy=False, **lengths)

    for chunk in model:
        chunk.eval()
    if args.custom_megatron_before_log_prob_hook_path:
        pkgutil.resolve_name(args.custom_megatron_before_log_prob_hook_path)(args, model, store_prefix)
    store: list[dict[str, list[Tensor]]] = []
    for number in num_microbatches:
        store += get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=list(data_iterator), model=list(model),
            num_microbatches=number, seq_length=args.seq_length, micro_batch_size=args.micro_batch_size,
            forward_only=True,
        )  # fmt: skip
    for chunk in model:
        chunk.train()
    if not mpu.is_pipeline_last_stage(ignore_virtual=True):
        return {}
    return {store_prefix + key: [value for part in store for value in part[key]] for key in store[0]}


def compute_log_prob(args: Any, model: Sequence[Any], rollout_data: dict[str, Any], store_prefix: str = "") -> None:
    """slime's pass over all responses before the advantages, as its actor makes it, without a result."""

    def spoil(logits: Tensor, **_: Any) -> tuple[Tensor, dict[str, list[Tensor]]]:
        logits.mul_(torch.nan)  # slime also changes them in place: it divides by the temperature
        return logits.new_empty(0), {}

    iterators = [DataIterator(rollout_data, rollout_data["micro_batch_indices"]) for _ in model]
    forward_only(spoil, args, model, iterators, rollout_data["num_microbatches"], store_prefix=store_prefix)


def get_responses(
    logits: Tensor,
    *,
    args: Any,
    unconcat_tokens: list[Tensor],
    total_lengths: list[int],
    response_lengths: list[int],
    apply_temperature: bool = True,
) -> Iterator[tuple[Tensor, Tensor]]:
    from megatron.core import mpu

    assert (logits.dtype, logits.dim(), len(logits)) == (torch.float32, 3, 1)
    assert not apply_temperature, "the temperature of GAR's vectors is a different setting"
    start = 0
    for tokens, total, response in zip(unconcat_tokens, total_lengths, response_lengths, strict=True):
        places = places_of(total, mpu)
        counted = (places >= total - response - 1) & (places < total - 1)
        yield logits[0, start : start + len(places)][counted], tokens[places[counted] + 1]
        start += len(places)


def compute_advantages_and_returns(args: Any, rollout_data: dict[str, Any]) -> None:
    from megatron.core import mpu

    if not mpu.is_pipeline_last_stage(ignore_virtual=True):
        return
    rewards, lengths = rollout_data["rewards"], rollout_data["response_lengths"]
    rollout_data["advantages"] = [torch.full((n,), float(r)) for r, n in zip(rewards, lengths, strict=True)]
    rollout_data["returns"] = rollout_data["advantages"]


def places_of(length: int, mpu: Any) -> Tensor:
    """Positions of a sequence on this context rank: one chunk from the front and one from the back."""
    size, rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    if size == 1:
        return torch.arange(length)
    chunk = -(-length // (2 * size))
    return torch.cat([torch.arange(k * chunk, (k + 1) * chunk) for k in (rank, 2 * size - 1 - rank)])


def _packed(sequences: list[Tensor], multiple: int, mpu: Any) -> tuple[Tensor, Any]:
    """This rank's tokens of a micro-batch in one padded row, and the parameters of the row of all context ranks."""
    rows = []
    for tokens in sequences:
        places = places_of(len(tokens), mpu)
        rows.append(torch.where(places < len(tokens), tokens[places.clamp(max=len(tokens) - 1)], 0))
    unit = multiple * mpu.get_tensor_model_parallel_world_size()
    padding = -sum(map(len, rows)) % unit
    if padding:
        rows.append(torch.zeros(padding, dtype=torch.long))
    ends = torch.tensor([0, *map(len, rows)]).cumsum(0).int() * mpu.get_context_parallel_world_size()
    return torch.cat(rows)[None], packed_params(ends)


def packed_params(ends: Tensor) -> SimpleNamespace:
    """Megatron's parameters of a packed row, from the offsets of its sequences."""
    longest = int(ends.diff().max())
    return SimpleNamespace(
        qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=longest, max_seqlen_kv=longest,
        cu_seqlens_q_padded=None, cu_seqlens_kv_padded=None, local_cp_size=None, cp_group=None,
    )  # fmt: skip


def install_modules(modules: dict[str, dict[str, Any]]) -> None:
    """Make modules with the given contents importable in this process."""
    for name, content in modules.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(content)


def install(tokenizer: Any = None) -> None:
    """Put the stand-in in slime's place, for this process."""

    def load_tokenizer(name: str, *, trust_remote_code: bool) -> Any:
        assert not trust_remote_code, "no code of a checkpoint is run"
        return tokenizer

    megatron, remote = "slime.backends.megatron_utils", SimpleNamespace(modified_class=RolloutManager)
    packages = ("slime", "slime.backends", megatron, "slime.ray", "slime.utils")
    loss = {"get_responses": get_responses, "compute_advantages_and_returns": compute_advantages_and_returns}
    install_modules(
        {
            **{name: {} for name in packages},
            f"{megatron}.data": {"DataIterator": DataIterator},
            f"{megatron}.model": {"forward_only": forward_only},
            f"{megatron}.loss": loss,
            "slime.ray.rollout": {"RolloutManager": SimpleNamespace(__ray_metadata__=remote)},
            "slime.utils.processing_utils": {"load_tokenizer": load_tokenizer},
        }
    )
