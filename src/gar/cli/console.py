"""What a command says while it works, on stderr."""

import os
import sys


def announce(text: str) -> None:
    """Say what is going on, before the first slow import. Of several ranks the first one speaks."""
    if os.environ.get("RANK", "0") == "0":
        print(f"gar: {text}", file=sys.stderr, flush=True)
