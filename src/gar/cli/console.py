"""Print progress on stderr and results on stdout."""

import os
import sys

from rich.console import Console, RenderableType


def announce(text: str) -> None:
    """Print progress on rank 0, before the first slow import."""
    if os.environ.get("RANK", "0") == "0":
        print(f"gar: {text}", file=sys.stderr, flush=True)


def show(shown: RenderableType, style: str = "") -> None:
    """Print a table, or a text as it stands: no markup, no line breaks."""
    text = isinstance(shown, str)
    Console(highlight=False).print(shown, style=style or None, markup=not text, soft_wrap=text)
