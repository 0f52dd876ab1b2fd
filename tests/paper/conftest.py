"""The methods of paper/ are registered for its own tests alone: other tests count the library's."""

from collections.abc import Iterator

import pytest

import paper.methods  # noqa: F401
from gar.methods import METHODS
from gar.settings import REGISTERED
from paper.analyses.policies import Policy, load_policy_of
from tests.integrations.conftest import make_trainer as make_trainer
from tests.integrations.conftest import verifier as verifier

_THEIRS = {name: METHODS.pop(name) for name in ("grad2reward", "sft", "sft-grpo", "luffy", "chord", "sdft", "sdpo")}
for name in _THEIRS:
    REGISTERED.pop(name)


@pytest.fixture(autouse=True)
def methods_of_the_paper() -> Iterator[None]:
    METHODS.update(_THEIRS)
    REGISTERED.update(_THEIRS)
    yield
    for name in _THEIRS:
        METHODS.pop(name)
        REGISTERED.pop(name)


@pytest.fixture(scope="session")
def embedded() -> Policy:
    """The embedded model with its problems, loaded once."""
    return load_policy_of("embedded")
