"""Assert which error was raised by its type and its code. Messages stand in tests/golden/messages.txt."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gar.errors import GarError


@contextmanager
def raises(kind: type[GarError], code: str | None = None, *names: str) -> Iterator[pytest.ExceptionInfo[GarError]]:
    """Like `pytest.raises`, for the errors of `gar`. The code must be the one given. Without one, any will do.

    The text must hold each of `names`: places, columns and values, not words.
    """
    with pytest.raises(kind) as caught:
        yield caught
    found = caught.value.code
    assert code in (None, found), f"expected code {code!r}, got {found!r}: {caught.value}"
    assert [name for name in names if name not in str(caught.value)] == [], str(caught.value)
