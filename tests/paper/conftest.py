"""The embedded model with its problems, loaded once."""

import pytest

from paper.analyses.policies import Policy, load_policy_of


@pytest.fixture(scope="session")
def embedded() -> Policy:
    return load_policy_of("embedded")
