"""What a step logs under TRL."""

import pytest

from gar.types import Status
from tests.integrations.conftest import TrainerFactory


def test_metrics_are_those_of_the_records_over_several_steps(make_trainer: TrainerFactory):
    """TRL averages each name over the steps in which it was logged: a status that is missing in one must count as 0."""
    trainer, records = make_trainer(args={"max_steps": 2, "logging_steps": 2})
    trainer.train()
    (logged,) = [row for row in trainer.state.log_history if "gar/alignment_mean" in row]
    expected = {
        "gar/verified": [record.verified for record in records],
        "gar/well_formatted": [record.well_formatted for record in records],
        "gar/eligible": [record.eligible for record in records],
        "gar/scored": [record.alignment is not None for record in records],
        "gar/no_anchor": [not record.anchor for record in records],
        "gar/no_signal": [record.num_scored_tokens == 0 for record in records],
        **{f"verify/{status}": [record.status is status for record in records] for status in Status},
    }
    for name, flags in expected.items():
        assert logged[f"{name}_fraction"] == pytest.approx(sum(flags) / len(flags)), name
    sizes = [abs(record.advantage) for record in records]
    assert logged["gar/advantage_abs_mean"] == pytest.approx(sum(sizes) / len(sizes))
