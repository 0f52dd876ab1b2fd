#!/usr/bin/env bash
# datasets 5.2.0: `Dataset.from_list` takes the columns of the first row, and drops what only later rows have without a word.
# Expected: None in the first row. If it has no expert solution, no row has one.
# Source: `Dataset.from_list` in datasets/arrow_dataset.py
# gar: lists of rows given to `GARTrainer` keep every key (tests/integrations/test_trl_problems.py).
exec "$(dirname "$0")/with.sh" datasets==5.2.0 <<'PYTHON'
import datasets

made = datasets.Dataset.from_list([{"answer": "1"}, {"answer": "2", "expert_solution": "1 + 1 = 2"}])
print(datasets.__version__, made.column_names, made[:])
assert made.column_names == ["answer"]
PYTHON
