#!/usr/bin/env bash
# TRL 1.16.0: `generation_kwargs={"stop_strings": [...]}` ends in an error at the first rollout, since TRL passes no tokenizer to `generate`.
# Expected: responses that end there.
# Source: `_generate_single_turn` in trl/trainer/grpo_trainer.py
# gar: no fault of ours. End tokens (`eos_token_id`) do work.
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import trl
from trl_step import first_log

try:
    first_log(generation_kwargs={"stop_strings": ["a"]})
except ValueError as error:
    print(trl.__version__, str(error)[:120])
    assert "tokenizer" in str(error)
else:
    raise SystemExit("stop strings work now")
PYTHON
