#!/usr/bin/env bash
# TRL 1.16.0 with PEFT 0.21.2: with `init_lora_weights="pissa"` and beta > 0 the KL to the reference is not 0 at the first step.
# Expected: 0, since the policy begins as the base model. PiSSA moves a part of the base weights into the adapter, and the reference is the model without it.
# Source: https://huggingface.co/docs/peft/main/en/developer_guides/lora (PiSSA) and `ref_model` in trl/trainer/grpo_trainer.py
# gar: signal.policy initial copies the trained weights instead of disabling the adapter (gar/integrations/trl/weights.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import trl
from peft import LoraConfig
from trl_step import first_log

plain, pissa = (
    first_log(peft_config=LoraConfig(r=4, target_modules="all-linear", init_lora_weights=how), beta=0.1)["kl"]
    for how in (True, "pissa")
)
print(trl.__version__, "KL with zeros:", plain, "with PiSSA:", pissa)
assert plain == 0
assert pissa > 0.01
PYTHON
