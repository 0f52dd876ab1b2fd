#!/usr/bin/env bash
# transformers 5.23.0: with rope_type dynamic, a pass of exactly max_position_embeddings tokens keeps the frequencies of a longer pass before it.
# Expected: the result of a fresh model. A pass that is one token shorter does give it.
# Source: `dynamic_rope_update` in transformers/modeling_rope_utils.py
# gar: gar/models/rope.py counts that length as a grown one (tests/models/test_families.py). verl: refused.
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 <<'PYTHON'
import torch
import transformers
from transformers import Qwen2Config, Qwen2ForCausalLM


def model():
    torch.manual_seed(0)
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"num_key_value_heads": 2, "vocab_size": 64, "initializer_range": 0.3, "max_position_embeddings": 16}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, **more, rope_parameters=rope)).eval()


@torch.no_grad()
def change(length):
    """The largest change of a logit that a pass of 32 tokens leaves behind."""
    tokens, used = torch.arange(length)[None], model()
    before = used(input_ids=tokens).logits
    used(input_ids=torch.arange(32)[None])
    return (used(input_ids=tokens).logits - before).abs().max().item()


shorter, equal = change(15), change(16)
print(transformers.__version__, "15 tokens:", shorter, "16 tokens:", equal)
assert shorter == 0
assert equal > 0.1
PYTHON
