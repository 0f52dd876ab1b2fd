#!/usr/bin/env bash
# PEFT 0.21.2: `all-linear` on Qwen3-MoE adapts experts and router, and leaves the MLP of dense layers out.
# Expected: every linear layer but the LM head, as on a dense Qwen3.
# Source: `_maybe_include_all_linear_layers` in peft/tuners/tuners_utils.py
# gar: the help of adapter.target_modules says so (gar/settings.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 peft==0.21.2 <<'PYTHON'
import peft
from peft import LoraConfig, get_peft_model
from tiny import model
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM


def adapted(base):
    names = get_peft_model(base, LoraConfig(target_modules="all-linear")).named_parameters()
    return {name.split("layers.")[-1].split(".lora_A")[0] for name, _ in names if "lora_A" in name}


settings = {
    "vocab_size": 320, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
}
dense = adapted(model())
mixed = adapted(Qwen3MoeForCausalLM(Qwen3MoeConfig(**settings, mlp_only_layers=[0])))
print(peft.__version__, sorted(dense), sorted(mixed))
assert "0.mlp.gate_proj" in dense
assert "1.mlp.gate" in mixed and "1.mlp.experts" in mixed
assert not any(name.startswith("0.mlp") for name in mixed)
PYTHON
