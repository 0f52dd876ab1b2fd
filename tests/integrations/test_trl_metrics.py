"""What a step logs under TRL."""

import pytest

from gar.types import Status
from tests.integrations.conftest import TrainerFactory


def test_shares_of_statuses_add_up_over_several_steps(make_trainer: TrainerFactory):
    """TRL averages each name over the steps in which it was logged: a status that is missing in one must count as 0."""
    trainer, records = make_trainer(args={"max_steps": 2, "logging_steps": 2})
    trainer.train()
    (logged,) = [row for row in trainer.state.log_history if "gar/alignment_mean" in row]
    shares = {status: logged[f"verify/{status}_fraction"] for status in Status}
    assert sum(shares.values()) == pytest.approx(1.0)
    for status, share in shares.items():
        assert share == pytest.approx(sum(record.status is status for record in records) / len(records))


def test_metrics_are_those_of_the_records(make_trainer: TrainerFactory):
    trainer, records = make_trainer()
    trainer.train()
    (logged,) = [row for row in trainer.state.log_history if "gar/alignment_mean" in row]
    expected = {
        "verified": [record.verified for record in records],
        "well_formatted": [record.well_formatted for record in records],
        "eligible": [record.eligible for record in records],
        "scored": [record.alignment is not None for record in records],
        "no_anchor": [not record.anchor for record in records],
        "no_signal": [record.num_scored_tokens == 0 for record in records],
    }
    for name, flags in expected.items():
        assert logged[f"gar/{name}_fraction"] == pytest.approx(sum(flags) / len(flags)), name
    sizes = [abs(record.advantage) for record in records]
    assert logged["gar/advantage_abs_mean"] == pytest.approx(sum(sizes) / len(sizes))
