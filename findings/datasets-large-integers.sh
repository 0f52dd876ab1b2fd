#!/usr/bin/env bash
# datasets 5.2.0: one integer beyond 64 bits makes the whole JSON column floats, and digits are lost.
# Expected: an error, or texts.
# Source: https://arrow.apache.org/docs/python/json.html (automatic type inference)
# gar: own files keep every digit. A float of 2^53 or more as answer is an error (gar/data/schemas.py, tests/data/test_schemas.py).
exec "$(dirname "$0")/with.sh" datasets==5.2.0 <<'PYTHON'
import datasets
from json_rows import load

large = load([123456789012345678901234567890, 1])
print(datasets.__version__, large)
assert large == [1.2345678901234568e29, 1.0]
assert int(large[0]) != 123456789012345678901234567890
PYTHON
