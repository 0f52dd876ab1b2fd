"""`gar`: list the commands, and import only the one that runs."""

import importlib
import os
import sys
from collections.abc import Sequence

from gar import __version__
from gar.cli.outcomes import INTERRUPTED, REFUSED, WRONG_USAGE
from gar.errors import GarError, UsageError, did_you_mean

COMMANDS = {
    "train": ("gar.cli.train", "train a policy with gradient-aligned rewards"),
    "data": ("gar.cli.data", "check a file of problems, or prepare a subset of one"),
    "score": ("gar.cli.score", "score a file of responses against expert solutions"),
    "compare": ("gar.cli.compare", "train several methods over several seeds and test their differences"),
    "eval": ("gar.cli.eval", "measure models on benchmarks, and compare them with error bars"),
    "report": ("gar.cli.report", "write one page about runs: verdict, curves, rollouts"),
    "doctor": ("gar.cli.doctor", "show what this machine and installation can do, and what is missing"),
}


def usage() -> str:
    """The text of `gar --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: gar COMMAND [ARGUMENTS]",
            "",
            "Gradient-Aligned Reward: dense rewards for RL with verifiable rewards.",
            "",
            *lines,
            "",
            "gar COMMAND --help gives details. gar --version prints the version.",
            "Start with: gar train --preset demo",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status, as docs/errors.md lists them.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments:
        print(usage(), file=sys.stderr)
        return WRONG_USAGE
    if arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(f"gar {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS)
        print(f"gar: unknown command '{name}', expected one of {', '.join(COMMANDS)}.{hint}", file=sys.stderr)
        return WRONG_USAGE
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # nothing is sent unless the user asks for it
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")  # errors stay on one line
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # gar checks or decides what its warnings are about
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    try:
        return importlib.import_module(COMMANDS[name][0]).main(rest)
    except GarError as error:
        print(f"gar {name}: {error}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, UsageError) else REFUSED
    except KeyboardInterrupt as interrupt:
        print(f"\ngar {name}: {str(interrupt) or 'interrupted'}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not {"-h", "--help"} & set(rest):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # as in `gar train --help | head`
        return 0
