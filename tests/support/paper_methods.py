"""The methods of paper/ are registered where a test asks for them: other tests count the library's."""

from collections.abc import Iterator
from contextlib import contextmanager

import paper.methods  # noqa: F401  registers them
from gar.methods import METHODS
from gar.settings import REGISTERED

_THEIRS = {
    name: METHODS.pop(name) for name in ("grad2reward", "sft", "rft", "sft-grpo", "luffy", "chord", "sdft", "sdpo")
}
for name in _THEIRS:
    REGISTERED.pop(name)


@contextmanager
def registered() -> Iterator[None]:
    """Register the methods of paper/, as `--plugin paper.methods` does."""
    METHODS.update(_THEIRS)
    REGISTERED.update(_THEIRS)
    yield
    for name in _THEIRS:
        METHODS.pop(name)
        REGISTERED.pop(name)
