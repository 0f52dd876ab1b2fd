#!/usr/bin/env bash
# TRL 1.16.0: `GRPOConfig()` is an error on a machine without a GPU. It works with use_cpu=True, and with bf16=False.
# Expected: a configuration, as `TrainingArguments()` of transformers. TRL's default is bf16, and transformers checks the device at once.
# Source: `bf16` in trl/trainer/base_config.py and `_validate_args` in transformers/training_args.py
# gar: gar train sets both where there is no GPU (gar/integrations/trl/arguments.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import torch
import trl
from transformers import TrainingArguments
from trl import GRPOConfig

if torch.cuda.is_available():
    print("This machine has a GPU: not checked.")
    raise SystemExit

TrainingArguments()
for settings in ({"use_cpu": True}, {"bf16": False}):
    GRPOConfig(**settings)
try:
    GRPOConfig()
except ValueError as error:
    print(trl.__version__, error)
    assert "bf16" in str(error)
else:
    raise AssertionError("GRPOConfig() works")
PYTHON
