"""The names of metrics stand once, and the glossary defines them."""

import re
from pathlib import Path

from gar import metrics

ROOT = Path(__file__).parents[1]
NAMES = {value for value in vars(metrics).values() if isinstance(value, str) and re.fullmatch(r"gar/\w+", value)}


def test_no_other_module_writes_the_name_of_a_metric():
    files = [path for path in (ROOT / "src" / "gar").rglob("*.py") if path.name != "metrics.py"]
    found = {name for path in files for name in re.findall(r'"(gar/\w+)"', path.read_text())}
    assert found == {"gar/expert_tokens"}  # a method of the paper logs it


def test_the_glossary_defines_each_metric():
    text = (ROOT / "docs" / "glossary.md").read_text()
    assert not [name for name in NAMES if name not in text and name.removeprefix("gar/") not in text]
