"""Assert which error was raised by its type and its code. Messages stand in tests/golden/messages.txt."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gar.errors import GarError


@contextmanager
def raises(kind: type[GarError], code: str | None = None) -> Iterator[pytest.ExceptionInfo[GarError]]:
    """Like `pytest.raises`, for the errors of `gar`: the code is the one given, or else that of the class."""
    with pytest.raises(kind) as caught:
        yield caught
    expected = kind.code if code is None else code
    assert caught.value.code == expected, f"expected code {expected!r}, got {caught.value.code!r}: {caught.value}"
