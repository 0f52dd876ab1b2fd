"""Shared by the tests of paper/."""

from collections.abc import Iterator

import pytest

from paper.analyses.policies import Policy, load_policy_of
from tests.integrations.conftest import make_trainer as make_trainer
from tests.integrations.conftest import verifier as verifier
from tests.support.paper_methods import registered


@pytest.fixture(autouse=True)
def methods_of_the_paper() -> Iterator[None]:
    """Every test of paper/ has its methods."""
    with registered():
        yield


@pytest.fixture(scope="session")
def embedded() -> Policy:
    """The embedded model with its problems, loaded once."""
    return load_policy_of("embedded")
