#!/usr/bin/env bash
# datasets 5.2.0: a JSON column whose texts all look like dates is read as timestamps, not as text.
# Expected: "2024-05-01" stays text. A time of day ("12:30:00") does.
# Source: https://arrow.apache.org/docs/python/json.html (automatic type inference)
# gar: own files are read without inference (gar/data/rows.py). A data set with such a column is an error that names it (gar/data/schemas.py).
exec "$(dirname "$0")/with.sh" datasets==5.2.0 <<'PYTHON'
import datasets
from json_rows import load

dates, times = load(["2024-05-01", "2023-01-31"]), load(["12:30:00", "01:02:03"])
print(datasets.__version__, dates, times)
assert [type(each).__name__ for each in dates] == ["datetime", "datetime"]
assert times == ["12:30:00", "01:02:03"]
PYTHON
