#!/usr/bin/env bash
# datasets 5.2.0: `map` serves the old result when a global of an imported module has changed, though it notices one of the script.
# Expected: a new computation in both cases. A prompt template in a module of your own is such a global.
# Source: https://huggingface.co/docs/datasets/about_cache (a function is hashed by pickling, and an imported one by its name)
# gar: no fault of ours: gar renders prompts on access and caches none.
exec "$(dirname "$0")/with.sh" datasets==5.2.0 <<'PYTHON'
import pathlib
import sys

import datasets

datasets.disable_progress_bars()
pathlib.Path("prompts.py").write_text('TEMPLATE = "old "\n\ndef render(row):\n    return {"prompt": TEMPLATE + row["q"]}\n')
sys.path.insert(0, ".")
import prompts

TEMPLATE = "old "


def render(row):
    return {"prompt": TEMPLATE + row["q"]}


datasets.Dataset.from_dict({"q": ["1"]}).save_to_disk("saved")


def mapped(function):
    return datasets.load_from_disk("saved").map(function)["prompt"][:]


first = mapped(render), mapped(prompts.render)
TEMPLATE = prompts.TEMPLATE = "new "
second = mapped(render), mapped(prompts.render)
print(datasets.__version__, first, second)
assert first == (["old 1"], ["old 1"])
assert second == (["new 1"], ["old 1"])
PYTHON
