#!/usr/bin/env bash
# TRL 1.16.0: with GPT-2 the entropy of a first token depends on how far its prompt is padded.
# Expected: the same entropy, as with Qwen3. The pass gets the mask of the padding on the left, and no positions, so learned positions count it.
# Source: `_get_per_token_logps_and_entropies` in trl/trainer/grpo_trainer.py; `forward` in transformers/models/gpt2/modeling_gpt2.py
# gar: vectors of models with learned positions come from a pass of their own (gar/integrations/trl/states.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import torch
import trl
from tiny import model
from transformers import GPT2Config, GPT2LMHeadModel
from trl_step import first_log


def gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 256, "vocab_size": 320, "initializer_range": 0.2}
    return GPT2LMHeadModel(GPT2Config(**sizes, eos_token_id=256, bos_token_id=256))


def entropies(make):
    """The entropy of the first token after one prompt, without padding and in a batch padded to 64 tokens."""
    return [first_log(policy=make(), max_completion_length=1, pad_to_multiple_of=to)["entropy"] for to in (None, 64)]


rotary, learned = entropies(model), entropies(gpt2)
print(trl.__version__, "entropy without and with padding: Qwen3", rotary, "GPT-2", learned)
assert abs(rotary[0] - rotary[1]) < 1e-3
assert abs(learned[0] - learned[1]) > 0.02
PYTHON
