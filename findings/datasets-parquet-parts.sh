#!/usr/bin/env bash
# datasets 5.2.0: in a data set of several Parquet files, answers that are text become numbers if the first file holds numbers: "007" is 7.
# Expected: an error, or text. The types of the first file count, and Arrow casts the others to them.
# Source: `_cast_table` in datasets/packaged_modules/parquet/parquet.py
# gar: reads each file with its own types (gar/data/rows.py, tests/data/test_sources.py). Check a data set that you load yourself.
exec "$(dirname "$0")/with.sh" datasets==5.2.0 <<'PYTHON'
import datasets
import pyarrow as pa
import pyarrow.parquet as pq

datasets.disable_progress_bars()
files = ["first.parquet", "second.parquet"]
for file, answers in zip(files, ([1, 2], ["34", "007"])):
    pq.write_table(pa.table({"answer": answers}), file)
read = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir="cache")["answer"][:]
other = datasets.load_dataset("parquet", data_files=files[::-1], split="train", cache_dir="cache")["answer"][:]
print(datasets.__version__, read, "the other way round:", other)
assert read == [1, 2, 34, 7]
assert other == ["34", "007", "1", "2"]
PYTHON
