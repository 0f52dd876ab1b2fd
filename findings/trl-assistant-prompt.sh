#!/usr/bin/env bash
# TRL 1.16.0: a prompt whose last message is the assistant's gets a generation prompt after it, so the model starts a second answer.
# Expected: the last message is continued, as `apply_chat_template` of trl/data_utils.py does for other trainers.
# Source: `add_generation_prompt=True` in `_tokenize_prompts` of trl/trainer/grpo_trainer.py
# gar: renders prompts the same way, for vectors and evaluations too (gar/reader.py, tests/contracts/test_trl.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import trl
from tiny import model, tokenizer
from trl_step import first_log

policy, seen = model(), []
generate = policy.generate


def record(input_ids, **settings):
    seen.append(tokenizer().decode(input_ids[0], skip_special_tokens=True))
    return generate(input_ids=input_ids, **settings)


policy.generate = record
first_log(policy=policy, prompt=[{"role": "user", "content": "3+4="}, {"role": "assistant", "content": "The sum is"}])
print(trl.__version__, seen[0])
assert seen[0] == "[user]3+4=[assistant]The sum is[assistant]"
PYTHON
