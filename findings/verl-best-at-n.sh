#!/usr/bin/env bash
# verl 0.9.1: `best@N` of a validation draws N responses with replacement: one right response of 8 gives best@8 0.65.
# Expected: 1, since one of the 8 is right, as pass@8 says.
# Source: `bootstrap_metric` in verl/trainer/ppo/metric_utils.py
# gar: gar eval's pass@k draws without replacement (gar/evaluation/metrics.py). Do not compare the two.
exec "$(dirname "$0")/with.sh" --no-deps -r "$(dirname "$0")/../constraints/verl.txt" <<'PYTHON'
import verl
from verl.trainer.ppo.metric_utils import process_validation_metrics

scores = [1.0] + [0.0] * 7
metrics = process_validation_metrics(["test"] * 8, ["problem"] * 8, {"acc": scores})["test"]["acc"]
best = metrics["best@8/mean"]
print(verl.__version__, "best@8:", best, "with replacement:", 1 - (7 / 8) ** 8, "mean@8:", metrics["mean@8"])
assert abs(best - (1 - (7 / 8) ** 8)) < 0.05
PYTHON
