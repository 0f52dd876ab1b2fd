#!/usr/bin/env bash
# TRL 1.16.0: with LoRA dropout and num_iterations=2 the first update of an adapter that is not zero clips tokens: their ratios are not 1.
# Expected: 1: the old log-probabilities belong to the same weights. Both passes are made in training mode, each with its own dropout.
# Source: `_generate_and_score_completions` and `disable_dropout` in trl/trainer/grpo_trainer.py
# gar: vectors come from a pass of their own without dropout (gar/integrations/trl/states.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import trl
from peft import LoraConfig
from trl_step import first_log



def clipped(rate):
    """The share of clipped tokens in the first update of an adapter that is not zero."""
    lora = LoraConfig(r=4, target_modules="all-linear", lora_dropout=rate, init_lora_weights=False)
    return first_log(peft_config=lora, num_iterations=2)["clip_ratio/region_mean"]


without, with_dropout = clipped(0.0), clipped(0.3)
print(trl.__version__, "clipped share without dropout:", without, "with:", with_dropout)
assert without == 0
assert with_dropout > 0.02
PYTHON
