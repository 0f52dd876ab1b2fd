#!/usr/bin/env bash
# transformers 5.23.0: `optim="stable_adamw"` reads `optim_args="kahan_sum=False"` as True.
# Expected: no Kahan summation. The text is given to `bool`, and every text but the empty one is true.
# Source: `_get_stable_adamw` in transformers/trainer_optimizer.py
# gar: no fault of ours. trl.optim_args is passed on.
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 accelerate==1.15.0 torch-optimi==0.3.3 <<'PYTHON'
import transformers
from tiny import model
from transformers import Trainer, TrainingArguments

settings = {"output_dir": "out", "use_cpu": True, "report_to": [], "optim": "stable_adamw"}
arguments = TrainingArguments(**settings, optim_args="kahan_sum=False,decouple_lr=False")
chosen = Trainer(model=model(), args=arguments).create_optimizer().defaults
print(transformers.__version__, {name: chosen[name] for name in ("kahan_sum", "decouple_lr")})
assert chosen["kahan_sum"] is True and chosen["decouple_lr"] is True
PYTHON
