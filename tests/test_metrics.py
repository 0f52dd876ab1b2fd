"""The names of metrics stand once, and the glossary defines them."""

import re
from pathlib import Path

from gar import metrics
from gar.integrations.trl.callbacks import PARTS

ROOT = Path(__file__).parents[1]
NAMES = {value for value in vars(metrics).values() if isinstance(value, str) and re.fullmatch(r"gar/\w+", value)}


def test_no_other_module_writes_the_name_of_a_metric():
    files = [path for path in (ROOT / "src" / "gar").rglob("*.py") if path.name != "metrics.py"]
    found = {name for path in files for name in re.findall(r'"(gar/\w+)"', path.read_text())}
    of_the_paper = {"gar/expert_tokens"}  # a method of the paper logs it
    assert found == of_the_paper, "metrics.py: names are written only there"


def test_pages_examples_and_scripts_name_metrics_that_exist():
    files = [path for folder in ("docs", "examples", "scripts") for path in (ROOT / folder).rglob("*.*")]
    texts = [path for path in files if path.suffix in (".md", ".py", ".ipynb", ".sh") and path.name != "log.md"]
    found = {name for path in texts for name in re.findall(r"""["'`](gar/\w+)["'`]""", path.read_text())}
    of_the_paper = {"judge_agreement", "judge_effective_tokens", "expert_tokens", "imitation_weight"}
    assert found - NAMES == {f"gar/{name}" for name in of_the_paper}


def test_the_glossary_defines_each_metric():
    timed = {metrics.seconds_of(part) for part in (*PARTS, "update", "step")}
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert len(NAMES) > 15
    assert sorted(name for name in NAMES | timed if f"`{name}`" not in glossary) == [], "docs/glossary.md lacks them"
