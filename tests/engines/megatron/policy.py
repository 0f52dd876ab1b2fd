"""A GPTModel of Megatron on CPU processes: a small one, the same however it is split, or a Qwen3 of Hugging Face."""

import re
import zlib
from contextlib import nullcontext
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

from gar.response import TokenSequence
from tests.engines.slime_standin import packed_params, places_of

PADDED_VOCAB = 96
SIZES: dict[str, Any] = {"num_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "ffn_hidden_size": 48}


def redirect_cuda() -> None:
    """Give Megatron the CPU as its current GPU."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = lambda self, *_, **__: self
    zeros = torch.zeros

    def zeros_here(*size: Any, **options: Any) -> Tensor:
        device = options.pop("device", None)
        return zeros(*size, device="cpu" if device == "cuda" else device, **options)

    torch.zeros = zeros_here
    CudaRNGStatesTracker.fork = lambda self, *_: nullcontext()


class PackedAttention(nn.Module):
    """Causal attention within each packed sequence, over all context ranks, as Transformer Engine's on a GPU."""

    def __init__(self, config: TransformerConfig, **_: Any):
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, packed_seq_params: Any, **__: Any) -> Tensor:
        ends = packed_seq_params.cu_seqlens_q
        spans = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        mine = torch.cat([start + places_of(end - start, mpu) for start, end in spans])
        group = mpu.get_context_parallel_group()
        times = query.shape[1] // key.shape[1]  # query heads to a key
        key, value = (x.repeat_interleave(times, dim=1) for x in (key, value))
        key, value, places = (_gathered(x, group) for x in (key, value, mine))
        same = torch.bucketize(places, ends, right=True) == torch.bucketize(mine, ends, right=True)[:, None]
        seen = same & (places <= mine[:, None])
        weights = torch.einsum("qhd,khd->hqk", query, key) / query.shape[-1] ** 0.5
        weights = weights.masked_fill(~seen, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, value).flatten(1)


class PlainNorm(nn.Module):
    """RMSNorm on a CPU."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


def _gathered(tensor: Tensor, group: Any) -> Tensor:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor.contiguous(), group=group)
    return torch.cat(parts)


class PatchedModel(GPTModel):
    """As slime patches Megatron: layers for multi-token prediction run only with labels, in training."""

    def _postprocess(self, *inputs: Any, mtp_in_postprocess: Any = None, **options: Any) -> Tensor:
        number, self.config.mtp_num_layers = self.config.mtp_num_layers, None
        try:
            return super()._postprocess(*inputs, mtp_in_postprocess=False, **options)
        finally:
            self.config.mtp_num_layers = number


def build_policy(
    *,
    tied: bool,
    mtp: bool = False,
    vocab_size: int = PADDED_VOCAB,
    rotary_base: int = 10_000,
    sizes: dict[str, Any] = SIZES,
    **more: Any,
) -> list[Any]:
    """The policy's chunks on this rank, wrapped as slime wraps them. The parallel state must exist.

    `mtp` adds a layer for multi-token prediction behind the last one. `more` are fields of the configuration.
    """
    stages = mpu.get_pipeline_model_parallel_world_size()
    virtual = mpu.get_virtual_pipeline_model_parallel_world_size()
    config = TransformerConfig(
        tensor_model_parallel_size=mpu.get_tensor_model_parallel_world_size(), pipeline_model_parallel_size=stages,
        context_parallel_size=mpu.get_context_parallel_world_size(), virtual_pipeline_model_parallel_size=virtual,
        use_cpu_initialization=True, pipeline_dtype=torch.float32, variable_seq_lengths=stages > 1,
        moe_token_dispatcher_type="alltoall", add_bias_linear=False, normalization="RMSNorm", hidden_dropout=0.0,
        attention_dropout=0.0, bias_dropout_fusion=False, masked_softmax_fusion=False,
        mtp_num_layers=1 if mtp else None, **sizes, **more,
    )  # fmt: skip
    layer = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=config.qk_layernorm)
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = PlainNorm
    attention = layer.submodules.self_attention.submodules
    attention.core_attention = PackedAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = PlainNorm
    layers = [layer] * (config.num_layers // stages // (virtual or 1))
    block = TransformerBlockSubmodules(layer_specs=layers, layer_norm=PlainNorm)
    chunks = []
    for stage in [None] if virtual is None else range(virtual):
        where = {"ignore_virtual": stage is None, "vp_stage": stage}
        further = get_gpt_mtp_block_spec(config, block, use_transformer_engine=False) if mtp else None
        model = PatchedModel(
            config=config, transformer_layer_spec=block, vocab_size=vocab_size, max_sequence_length=256,
            pre_process=mpu.is_pipeline_first_stage(**where), post_process=mpu.is_pipeline_last_stage(**where),
            parallel_output=True, share_embeddings_and_output_weights=tied, position_embedding_type="rope",
            rotary_base=rotary_base, vp_stage=stage, mtp_block_spec=further,
        )  # fmt: skip
        for name, parameter in model.named_parameters():
            if match := re.match(r"decoder\.layers\.(\d+)\.", name):  # its number in the unsplit model
                number = model.decoder.layers[int(match[1])].layer_number - 1
                name = name.replace(match[0], f"decoder.layers.{number}.")
            parameter.data = _values(name, parameter)
        chunks.append(DistributedDataParallel(config, DistributedDataParallelConfig(), model))
    return chunks


def _values(name: str, parameter: Any) -> Tensor:
    """This rank's part of a parameter. The whole follows from its name in an unsplit model."""
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
    """Inputs of the head in a pass over one sequence, [tokens, hidden]. On one process."""
    tokens = torch.tensor([[*sequence.context_ids, *sequence.ids]])
    if not tokens.numel():
        return torch.zeros(0, model.config.hidden_size)
    seen = []
    handle = model.output_layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][:, 0]))
    with torch.no_grad():
        model.eval()(tokens, None, None, packed_seq_params=packed_params(torch.tensor([0, tokens.numel()])))
    handle.remove()
    return seen[0]


# The embedded model's architecture.


def build_qwen3(source: Any) -> Any:
    """The same function of token ids as a Qwen3 of Hugging Face with an untied head, unsplit."""
    given = source.config
    sizes = {
        "num_layers": given.num_hidden_layers, "hidden_size": given.hidden_size, "kv_channels": given.head_dim,
        "num_attention_heads": given.num_attention_heads, "num_query_groups": given.num_key_value_heads,
        "ffn_hidden_size": given.intermediate_size,
    }  # fmt: skip
    (policy,) = build_policy(
        tied=False, vocab_size=given.vocab_size, rotary_base=int(given.rope_parameters["rope_theta"]), sizes=sizes,
        gated_linear_unit=True, activation_func=nn.functional.silu, layernorm_epsilon=given.rms_norm_eps,
        qk_layernorm=True,
    )  # fmt: skip
    weights = _renamed(source.state_dict(), policy.module.config)
    assert set(weights) == {name for name, _ in policy.module.named_parameters()}
    policy.module.load_state_dict(weights, strict=False)  # Megatron adds states that are empty here
    return policy


def _renamed(state: dict[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Megatron keeps queries, keys and values of a group together, and the gate before the other half of the MLP."""
    found = {
        "embedding.word_embeddings.weight": state["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": state["model.norm.weight"],
        "output_layer.weight": state["lm_head.weight"],
    }
    for i in range(config.num_layers):
        theirs, ours = f"model.layers.{i}.", f"decoder.layers.{i}."
        parts = [state[f"{theirs}self_attn.{name}_proj.weight"] for name in "qkv"]
        grouped = [part.unflatten(0, (config.num_query_groups, -1)) for part in parts]
        found[f"{ours}self_attention.linear_qkv.weight"] = torch.cat(grouped, dim=1).flatten(0, 1)
        halves = [state[f"{theirs}mlp.{name}_proj.weight"] for name in ("gate", "up")]
        found[f"{ours}mlp.linear_fc1.weight"] = torch.cat(halves)
        for name, other in _SAME.items():
            found[f"{ours}{other}.weight"] = state[f"{theirs}{name}.weight"]
    return found


_SAME = {
    "input_layernorm": "input_layernorm",
    "self_attn.q_norm": "self_attention.q_layernorm",
    "self_attn.k_norm": "self_attention.k_layernorm",
    "self_attn.o_proj": "self_attention.linear_proj",
    "post_attention_layernorm": "pre_mlp_layernorm",
    "mlp.down_proj": "mlp.linear_fc2",
}
