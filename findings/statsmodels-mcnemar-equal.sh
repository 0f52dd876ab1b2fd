#!/usr/bin/env bash
# statsmodels 0.15.0: McNemar's test without `exact` gives p = 0 for two models that agree on every problem.
# Expected: p = 1, which the exact test gives. The statistic divides by the number of disagreements, which is 0.
# Source: `mcnemar` in statsmodels/stats/contingency_tables.py
# gar: own paired tests say 1 (tests/evaluation/test_paired.py).
exec "$(dirname "$0")/with.sh" statsmodels==0.15.0 scipy==1.17.1 numpy==2.3.5 <<'PYTHON'
import statsmodels
from statsmodels.stats.contingency_tables import mcnemar

table = [[30, 0], [0, 70]]
exact, chi_squared = mcnemar(table, exact=True), mcnemar(table, exact=False)
print(statsmodels.__version__, "exact:", exact.pvalue, "chi-squared:", chi_squared.statistic, chi_squared.pvalue)
assert exact.pvalue == 1
assert chi_squared.pvalue == 0
PYTHON
