"""A small comparison in an empty folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gar.comparison.plan import ComparisonSettings, PlannedRun, planned_runs, read_comparison

TINY: dict[str, Any] = {
    "name": "tiny",
    "base": {"evaluate": {"sources": ["test"], "num_samples": 4, "pass_at_k": [1, 4]}, "trl": {"max_steps": 4}},
    "runs": ["grpo", "gar-grpo"],
    "seeds": [0, 1, 2],
}

Plan = Callable[..., tuple[ComparisonSettings, list[PlannedRun]]]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Writes the small comparison, changed as told, to tiny.yaml, and plans it. The folder is empty otherwise."""
    monkeypatch.chdir(tmp_path)

    def planned(**changes: Any) -> tuple[ComparisonSettings, list[PlannedRun]]:
        Path("tiny.yaml").write_text(yaml.safe_dump(TINY | changes))
        comparison = read_comparison("tiny.yaml")
        return comparison, planned_runs(comparison, "tiny.yaml")

    return planned
