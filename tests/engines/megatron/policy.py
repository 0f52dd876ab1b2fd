"""A small GPTModel of Megatron on CPU processes, the same one however it is split."""

import re
import zlib
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import mpu
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn

from gar.sequences import TokenSequence

PADDED_VOCAB = 96
LAYERS, HIDDEN, HEADS = 4, 32, 4


def redirect_cuda() -> None:
    """Megatron asks for the current GPU by name; here that is the CPU."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = lambda self, *_, **__: self
    zeros = torch.zeros

    def zeros_here(*size: Any, **options: Any) -> Tensor:
        return zeros(
            *size, **{**options, "device": "cpu" if options.get("device") == "cuda" else options.get("device")}
        )

    torch.zeros = zeros_here
    CudaRNGStatesTracker.fork = lambda self, *_: nullcontext()


class PackedAttention(nn.Module):
    """Causal attention within each packed sequence, over all context ranks: what Transformer Engine does on a GPU."""

    def __init__(self, config: TransformerConfig, **_: Any):
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, packed_seq_params: Any, **__: Any) -> Tensor:
        ends = packed_seq_params.cu_seqlens_q
        mine = _places(ends)
        group = mpu.get_context_parallel_group()
        key, value, places = (_gathered(x, group) for x in (key, value, mine))
        same = torch.bucketize(places, ends, right=True) == torch.bucketize(mine, ends, right=True)[:, None]
        seen = same & (places <= mine[:, None])
        weights = torch.einsum("qhd,khd->hqk", query, key) / query.shape[-1] ** 0.5
        weights = weights.masked_fill(~seen, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, value).flatten(1)


class PlainNorm(nn.Module):
    """RMSNorm on CPU, also of a part of the sequence."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


def _places(ends: Tensor) -> Tensor:
    """Where this rank's tokens stand in the packed row of all context ranks: of each sequence, two chunks."""
    size, rank = mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank()
    if size == 1:
        return torch.arange(int(ends[-1]))
    places = []
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        chunk = (end - start) // (2 * size)
        places += [start + k * chunk + torch.arange(chunk) for k in (rank, 2 * size - 1 - rank)]
    return torch.cat(places)


def _gathered(tensor: Tensor, group: Any) -> Tensor:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor.contiguous(), group=group)
    return torch.cat(parts)


class PatchedModel(GPTModel):
    """As slime patches Megatron: layers that predict further tokens run only with labels for them, in training."""

    def _postprocess(self, *inputs: Any, mtp_in_postprocess: Any = None, **options: Any) -> Tensor:
        number, self.config.mtp_num_layers = self.config.mtp_num_layers, None
        try:
            return super()._postprocess(*inputs, mtp_in_postprocess=False, **options)
        finally:
            self.config.mtp_num_layers = number


def build_policy(*, tied: bool, sequence_parallel: bool = False, mtp: bool = False) -> list[Any]:
    """The policy's chunks on this rank, wrapped as slime has them wrapped. The parallel state must exist.

    `mtp` adds a layer for multi-token prediction behind the last one.
    """
    stages = mpu.get_pipeline_model_parallel_world_size()
    virtual = mpu.get_virtual_pipeline_model_parallel_world_size()
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, ffn_hidden_size=48,
        tensor_model_parallel_size=mpu.get_tensor_model_parallel_world_size(), pipeline_model_parallel_size=stages,
        context_parallel_size=mpu.get_context_parallel_world_size(), sequence_parallel=sequence_parallel,
        use_cpu_initialization=True, pipeline_dtype=torch.float32,
        variable_seq_lengths=stages > 1, moe_token_dispatcher_type="alltoall", add_bias_linear=False,
        normalization="RMSNorm", hidden_dropout=0.0, virtual_pipeline_model_parallel_size=virtual,
        attention_dropout=0.0, bias_dropout_fusion=False, masked_softmax_fusion=False,
        mtp_num_layers=1 if mtp else None,
    )  # fmt: skip
    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = PlainNorm
    layer.submodules.self_attention.submodules.core_attention = PackedAttention
    block = TransformerBlockSubmodules(layer_specs=[layer] * (LAYERS // stages // (virtual or 1)), layer_norm=PlainNorm)
    chunks = []
    for stage in [None] if virtual is None else range(virtual):
        where = {"ignore_virtual": stage is None, "vp_stage": stage}
        further = get_gpt_mtp_block_spec(config, block, use_transformer_engine=False) if mtp else None
        model = PatchedModel(
            config=config, transformer_layer_spec=block, vocab_size=PADDED_VOCAB, max_sequence_length=256,
            pre_process=mpu.is_pipeline_first_stage(**where), post_process=mpu.is_pipeline_last_stage(**where),
            parallel_output=True, share_embeddings_and_output_weights=tied, position_embedding_type="rope",
            vp_stage=stage, mtp_block_spec=further,
        )  # fmt: skip
        for name, parameter in model.named_parameters():
            if match := re.match(r"decoder\.layers\.(\d+)\.", name):  # its number in the unsplit model
                number = model.decoder.layers[int(match[1])].layer_number - 1
                name = name.replace(match[0], f"decoder.layers.{number}.")
            parameter.data = _values(name, parameter)
        chunks.append(DistributedDataParallel(config, DistributedDataParallelConfig(), model))
    return chunks


def _values(name: str, parameter: Any) -> Tensor:
    """This rank's part of a parameter whose whole follows from its name in an unsplit model."""
    if name == "output_layer.weight" and getattr(parameter, "shared_embedding", False):
        name = "embedding.word_embeddings.weight"
    shape, ranks = list(parameter.shape), mpu.get_tensor_model_parallel_world_size()
    split = getattr(parameter, "partition_dim", -1) if getattr(parameter, "tensor_model_parallel", False) else None
    if split is not None:
        shape[split] *= ranks
    whole = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))) / 4
    if "norm" in name:
        whole = 1 + whole
    return whole if split is None else whole.chunk(ranks, split)[mpu.get_tensor_model_parallel_rank()].clone()


def hidden_states(model: Any, sequence: TokenSequence) -> Tensor:
    """What the head is given where one sequence passes alone, [tokens, hidden]. On one process."""
    tokens = torch.tensor([[*sequence.context_ids, *sequence.ids]])
    if not tokens.numel():
        return torch.zeros(0, HIDDEN)
    seen = []
    handle = model.output_layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][:, 0]))
    packed = SimpleNamespace(
        qkv_format="thd", cu_seqlens_q=torch.tensor([0, tokens.numel()]), cu_seqlens_kv=None, cu_seqlens_q_padded=None,
        max_seqlen_q=tokens.numel(), max_seqlen_kv=tokens.numel(), cu_seqlens_kv_padded=None, local_cp_size=None,
        cp_group=None,
    )  # fmt: skip
    packed.cu_seqlens_kv = packed.cu_seqlens_q
    with torch.no_grad():
        model.eval()(tokens, None, None, packed_seq_params=packed)
    handle.remove()
    return seen[0]
