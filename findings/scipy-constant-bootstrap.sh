#!/usr/bin/env bash
# scipy 1.17.1: `bootstrap` with its default method gives the interval (nan, nan) for a constant sample.
# Expected: an interval of width 0. A benchmark that is solved whole is such a sample.
# Source: https://docs.scipy.org/doc/scipy/reference/generated/scipy.stats.bootstrap.html (BCa)
# gar: own intervals are closed at 0 and 1 (gar/evaluation/statistics.py).
exec "$(dirname "$0")/with.sh" scipy==1.17.1 numpy==2.3.5 <<'PYTHON'
import math

import numpy as np
import scipy
from scipy import stats

solved = np.ones(20)
default = stats.bootstrap((solved,), np.mean, rng=0).confidence_interval
percentile = stats.bootstrap((solved,), np.mean, rng=0, method="percentile").confidence_interval
print(scipy.__version__, "default", tuple(default), "percentile", tuple(percentile))
assert all(map(math.isnan, default))
assert tuple(percentile) == (1, 1)
PYTHON
