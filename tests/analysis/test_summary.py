"""The summary shows what a run recorded and leaves open what it did not."""

import io

import pytest
from rich.console import Console

from gar.analysis.summary import render_summary, summarize
from gar.records import RunFolder


def shown(summary: dict) -> str:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render_summary(summary))
    return console.export_text()


def test_render_summary_shows_a_run_that_was_evaluated_only_at_its_end(tmp_path):
    run = RunFolder.create(tmp_path, "run")
    run.write_run(seed=0, command=["gar"], config={}, config_text="{}", data_hash=None)
    run.append_metrics({"step": 1, "time/step_seconds": 0.5, "time/gar_seconds": 0.1})
    run.write_json(
        "evaluation/after.json",
        {"step": 1, "sets": {"test": {"num_samples": 8, "problems": [], "pass_at": {"1": 0.625}}}},
    )
    line = next(line for line in shown(summarize(run.path)).splitlines() if "pass@1, test" in line)
    assert [cell.strip() for cell in line.strip("│").split("│")] == ["pass@1, test", "-", "0.625"]


@pytest.mark.parametrize(("scored", "charged"), [(0.0, False), (0.25, True)])
def test_a_run_without_a_signal_is_not_charged_its_share(tmp_path, scored, charged):
    run = RunFolder.create(tmp_path, "run")
    run.write_run(seed=0, command=["gar"], config={}, config_text="{}", data_hash=None)
    run.append_metrics({"step": 1, "time/step_seconds": 0.5, "time/gar_seconds": 0.1, "gar/scored_fraction": scored})
    assert ("GAR's share" in shown(summarize(run.path))) is charged
