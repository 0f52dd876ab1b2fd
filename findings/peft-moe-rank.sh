#!/usr/bin/env bash
# PEFT 0.21.2: on Qwen3-MoE, `all-linear` adapts gate and up projections of the experts with twice the rank, and twice `lora_alpha`.
# Expected: the rank that is set. transformers 5 holds the two projections as one tensor, and PEFT adds their ranks.
# Source: `rank_pattern` in peft/utils/transformers_weight_conversion.py
# gar: no fault of ours. The adapter has more weights than `adapter.rank` suggests.
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 peft==0.21.2 <<'PYTHON'
import peft
from peft import LoraConfig, get_peft_model
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

settings = {
    "vocab_size": 320, "hidden_size": 32, "moe_intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2,
}
base = Qwen3MoeForCausalLM(Qwen3MoeConfig(**settings))
adapted = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear"))
ranks = {
    name.split("layers.0.")[-1].split(".lora_A")[0]: weight.shape[0]
    for name, weight in adapted.named_parameters()
    if "lora_A" in name
}
print(peft.__version__, "rank 4, rows of A (of the experts, times 4 experts):", ranks)
assert ranks["self_attn.q_proj"] == 4
assert ranks["mlp.experts"] == 4 * 4
assert ranks["mlp.experts.base_layer"] == 2 * 4 * 4
PYTHON
