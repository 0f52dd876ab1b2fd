"""The device of these tests: DEVICE, by default cuda. `DEVICE=cpu` rehearses them with small sizes.

With GAR_GPU_RECORDS=FILE each test adds a line to that file as it ends, with what it measured (`record_property`).
"""

import json
import os

import pytest
import torch

from tests.integrations.conftest import make_trainer, verifier  # noqa: F401


@pytest.fixture(scope="session")
def device() -> str:
    name = os.environ.get("DEVICE", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device; DEVICE=cpu rehearses these tests")
    return name


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get("GAR_GPU_RECORDS")
    if not path or (report.when != "call" and report.passed):
        return
    row = {
        "file": report.nodeid.partition("::")[0],
        "test": report.nodeid.partition("::")[2],
        "status": report.outcome,
        "seconds": round(report.duration, 2),
        "measured": dict(report.user_properties),
    }
    if report.failed:
        row["error"] = report.longreprtext[-2000:]
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
