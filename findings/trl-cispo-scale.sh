#!/usr/bin/env bash
# TRL 1.16.0: with the default epsilon_high, loss_type cispo scales the gradient of every fresh token by 0.2.
# Expected: the gradient of dapo, since every ratio is 1 in a first update. The weight is clipped at epsilon_high itself, not at 1 + epsilon_high, and that is 0.2.
# Source: `cispo` in `_compute_loss` of trl/trainer/grpo_trainer.py
# gar: no fault of ours. Set trl.epsilon_high to 5, as the paper of CISPO does.
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import trl
from trl_step import first_log

dapo, cispo, wide = (
    first_log(**settings)["grad_norm"]
    for settings in ({"loss_type": "dapo"}, {"loss_type": "cispo"}, {"loss_type": "cispo", "epsilon_high": 5.0})
)
print(trl.__version__, "norm of the gradient, dapo:", dapo, "cispo:", cispo, "cispo with epsilon_high 5:", wide)
assert abs(cispo / dapo - 0.2) < 1e-3
assert abs(wide / dapo - 1) < 1e-3
PYTHON
