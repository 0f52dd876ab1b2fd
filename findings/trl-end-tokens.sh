#!/usr/bin/env bash
# TRL 1.16.0: every end token of the model's generation config ends a rollout and counts as its end, also if the tokenizer has another end token.
# Expected: only the tokenizer's end token, which the trainer is given. A base model with a chat tokenizer then stops at both.
# Source: `eos_token_ids` in trl/trainer/grpo_trainer.py
# gar: samples evaluations with the same end tokens (gar/models/generate.py, tests/contracts/test_trl.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import trl
from tiny import model
from trl_step import first_log

ENDS, seen = [*range(40), 256], []


def rewards(completion_ids, **_):
    seen.extend(completion_ids)
    return [float(place) for place in range(len(completion_ids))]


policy = model()
policy.generation_config.eos_token_id = ENDS
clipped = first_log(rewards, policy=policy)["completions/clipped_ratio"]
print(trl.__version__, "tokens:", [len(ids) for ids in seen], "fraction without an end:", clipped)
ended = [ids for ids in seen if ids[-1] in ENDS]
assert {ids[-1] for ids in ended} - {256}
assert not any(token in ENDS for ids in seen for token in ids[:-1])
assert clipped == 1 - len(ended) / len(seen)
PYTHON
