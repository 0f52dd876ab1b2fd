"""A Qwen3 of Hugging Face as Megatron's own GPTModel, unsplit on a CPU; untied heads alone."""

from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor
from torch.nn.functional import silu

from tests.engines.megatron.policy import PackedAttention, PlainNorm


class GroupedAttention(PackedAttention):
    """Several query heads to one key."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **named: Any) -> Tensor:
        times = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(times, dim=1) for x in (key, value))
        return super().forward(query, key, value, *arguments, **named)


def build_qwen3(source: Any) -> Any:
    """The same function of token ids as `source`, wrapped as slime has it wrapped."""
    given = source.config
    config = TransformerConfig(
        num_layers=given.num_hidden_layers, hidden_size=given.hidden_size, num_query_groups=given.num_key_value_heads,
        num_attention_heads=given.num_attention_heads, kv_channels=given.head_dim,
        ffn_hidden_size=given.intermediate_size, gated_linear_unit=True, activation_func=silu,
        layernorm_epsilon=given.rms_norm_eps, normalization="RMSNorm", qk_layernorm=True, add_bias_linear=False,
        hidden_dropout=0.0, attention_dropout=0.0, bias_activation_fusion=False, bias_dropout_fusion=False,
        masked_softmax_fusion=False, use_cpu_initialization=True, moe_token_dispatcher_type="alltoall",
    )  # fmt: skip
    layer = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=True)
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = PlainNorm
    attention = layer.submodules.self_attention.submodules
    attention.core_attention, attention.q_layernorm, attention.k_layernorm = GroupedAttention, PlainNorm, PlainNorm
    block = TransformerBlockSubmodules(layer_specs=[layer] * config.num_layers, layer_norm=PlainNorm)
    model = GPTModel(
        config=config, transformer_layer_spec=block, vocab_size=given.vocab_size, max_sequence_length=256,
        position_embedding_type="rope", rotary_base=int(given.rope_parameters["rope_theta"]),
        share_embeddings_and_output_weights=False, parallel_output=True,
    )  # fmt: skip
    weights = _renamed(source.state_dict(), config)
    assert set(weights) == {name for name, _ in model.named_parameters()}
    model.load_state_dict(weights, strict=False)  # beside parameters Megatron has states of its own, empty here
    return DistributedDataParallel(config, DistributedDataParallelConfig(), model)


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
