#!/usr/bin/env bash
# scipy 1.17.1: the paired t-test of two equal samples has no p value (nan), and Wilcoxon's test of the same has p = 1.
# Expected: p = 1 in both. Two models with equal scores are a usual result.
# Source: https://docs.scipy.org/doc/scipy/reference/generated/scipy.stats.ttest_rel.html
# gar: own paired tests say 1 for equal runs (gar/evaluation/paired.py).
exec "$(dirname "$0")/with.sh" scipy==1.17.1 numpy==2.3.5 <<'PYTHON'
import math

import scipy
from scipy import stats

scores = [0.25, 0.5, 0.75]
t, wilcoxon = stats.ttest_rel(scores, scores).pvalue, stats.wilcoxon(scores, scores).pvalue
print(scipy.__version__, "t-test", t, "Wilcoxon", wilcoxon)
assert math.isnan(t)
assert wilcoxon == 1
PYTHON
