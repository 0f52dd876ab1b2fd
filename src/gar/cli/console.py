"""Messages on stderr while a command works."""

import os
import sys


def announce(text: str) -> None:
    """Print what is going on, before the first slow import. Only rank 0 prints."""
    if os.environ.get("RANK", "0") == "0":
        print(f"gar: {text}", file=sys.stderr, flush=True)
