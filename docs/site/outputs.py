"""Rewrites a page with what its commands print now: python docs/site/outputs.py docs/evaluation.md

A command has an output if a block of text follows it. Commands run in an empty folder, without a terminal.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

_SHOWN = re.compile(r"^    gar (.+)\n\n```text\n(.*?)```$", re.MULTILINE | re.DOTALL)
_BORDERS = str.maketrans("│┃", "  ")
"""Borders of tables, which a page does not need."""


def page(path: Path) -> str:
    """The page as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        return _SHOWN.sub(lambda found: _shown(found[1], folder), path.read_text(encoding="utf-8"))


def _shown(arguments: str, folder: str) -> str:
    command = [sys.executable, "-m", "gar", *shlex.split(arguments)]
    environment = os.environ | {"COLUMNS": "80"}
    run = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.translate(_BORDERS).rstrip() for line in run.stdout.strip().splitlines() if line[0] not in "┏┡├└"]
    return "\n".join([f"    gar {arguments}\n", "```text", *lines, "```"])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(Path(sys.argv[1])), encoding="utf-8")
