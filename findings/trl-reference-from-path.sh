#!/usr/bin/env bash
# TRL 1.16.0: the reference model is read again from the path that the model was loaded from, so changes in memory are not in it.
# Expected: a copy of the model that the trainer is given, and a KL of 0 at the first step.
# Source: `ref_model` in trl/trainer/grpo_trainer.py
# gar: no fault of ours. gar train gives the trainer the model as its path holds it.
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import torch
import trl
from tiny import model
from transformers import AutoModelForCausalLM
from trl_step import first_log

model().save_pretrained("model")
same, changed = (AutoModelForCausalLM.from_pretrained("model") for _ in range(2))
with torch.no_grad():
    changed.model.norm.weight.mul_(1.5)
unchanged_kl, changed_kl = (first_log(policy=policy, beta=0.1)["kl"] for policy in (same, changed))
print(trl.__version__, "KL:", unchanged_kl, "after a change in memory:", changed_kl)
assert unchanged_kl == 0
assert changed_kl > 0.01
PYTHON
