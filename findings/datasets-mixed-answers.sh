#!/usr/bin/env bash
# datasets 5.2.0: in a JSON column that mixes numbers and texts, each text that is JSON by itself is read as JSON.
# Expected: an error, or texts that stay what they are. One number in the column turns "007" into 7, "1e5" into 100000.0 and "null" into None.
# Source: the feature type Json(decode=True) of datasets, https://github.com/huggingface/datasets
# gar: own files are read without inference. In a data set made so, gold answers have changed before gar sees them: docs/engine-facts.md.
exec "$(dirname "$0")/with.sh" datasets==5.2.0 <<'PYTHON'
import datasets
from json_rows import load

mixed, texts = load([1, "3/4", "007", "1e5", "null"]), load(["3/4", "007", "1e5", "null"])
print(datasets.__version__, mixed, texts)
assert mixed == [1, "3/4", 7, 100000.0, None]
assert texts == ["3/4", "007", "1e5", "null"]
PYTHON
