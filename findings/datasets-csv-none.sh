#!/usr/bin/env bash
# datasets 5.2.0: in CSV the answers None, NA, n/a and null are missing values.
# Expected: texts. "None" is the answer to some problems.
# Source: https://pandas.pydata.org/docs/reference/api/pandas.read_csv.html (na_values)
# gar: own CSV files are read as text (gar/data/rows.py).
exec "$(dirname "$0")/with.sh" datasets==5.2.0 <<'PYTHON'
import datasets

datasets.disable_progress_bars()
answers = ["None", "NA", "n/a", "null", "x"]
with open("rows.csv", "w") as file:
    file.writelines(f"{line}\n" for line in ["problem,answer", *(f"p,{answer}" for answer in answers)])
found = datasets.load_dataset("csv", data_files="rows.csv", split="train", cache_dir="cache")["answer"][:]
print(datasets.__version__, found)
assert found == [None, None, None, None, "x"]
PYTHON
