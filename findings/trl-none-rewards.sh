#!/usr/bin/env bash
# TRL 1.16.0: a reward of None takes a response out of the mean of its group, but beside a second function it counts as 0.
# Expected: the same in both cases.
# Source: `_calculate_rewards` (nansum over functions) in trl/trainer/grpo_trainer.py
# gar: own advantages leave out a response that no function has scored (gar/integrations/trl/trainer.py, tests/contracts/test_trl.py).
exec "$(dirname "$0")/with.sh" torch==2.13.0 transformers==5.23.0 trl==1.16.0 peft==0.21.2 datasets==5.2.0 accelerate==1.15.0 <<'PYTHON'
import trl
from trl_step import first_log


def some(completions, **_):
    return [1.0, 0.0, 1.0, None]


def nothing(completions, **_):
    return [0.0] * len(completions)


alone, beside = first_log(some)["reward"], first_log([some, nothing])["reward"]
print(trl.__version__, "mean reward alone:", alone, "beside a function of zeros:", beside)
assert abs(alone - 2 / 3) < 1e-6
assert beside == 0.5
PYTHON
