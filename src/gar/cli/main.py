"""`gar`: list the commands, and import only the one that runs."""

import atexit
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gar import __version__
from gar.cli.outcomes import DONE, INTERRUPTED, REFUSED, WRONG_USAGE
from gar.errors import GarError, UsageError, did_you_mean, printable
from gar.extras import require_extra
from gar.interrupts import Interrupted
from gar.output import lasting_output

COMMANDS = {
    "train": "train a policy with gradient-aligned rewards",
    "data": "check a file of problems, or prepare a subset of one",
    "compare": "train several methods over several seeds and test their differences",
    "eval": "measure models on benchmarks, and compare them with error bars",
    "report": "write one page about runs: verdict, curves, rollouts",
    "doctor": "show what this machine and installation can do, and what is missing",
}
_ABOUT = """Gradient-Aligned Reward: dense rewards for RL with verifiable rewards.
Start with: gar train --preset demo. gar --version prints the version."""
_EXTRAS = dict.fromkeys(COMMANDS, "train") | {"data": "cli", "doctor": "cli"}
_RESUMABLE = ("compare", "eval")
_ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",  # nothing is sent unless the user asks for it
    "PYDANTIC_ERRORS_INCLUDE_URL": "0",  # errors stay on one line
    "TRANSFORMERS_VERBOSITY": "error",  # gar checks or decides what its warnings are about
    "HF_HUB_VERBOSITY": "error",
}


def choose(arguments: Sequence[str], commands: Mapping[str, str], *, prog: str, about: str) -> tuple[str, list[str]]:
    """The command and its arguments. `commands` has a summary for each name.

    Raises:
        UsageError: The command is unknown.
        SystemExit: No command is named. They are listed, on stdout if --help asks for it.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, commands))
        lines = "".join(f"  {name:<{width}}  {summary}\n" for name, summary in commands.items())
        usage = f"usage: {prog} COMMAND [ARGUMENTS]\n\n{about}\n\n{lines}\n{prog} COMMAND --help gives details."
        print(usage, file=sys.stdout if arguments else sys.stderr)
        raise SystemExit(DONE if arguments else WRONG_USAGE)
    name, *rest = arguments
    if name not in commands:
        hint = did_you_mean(name, commands)
        raise UsageError(f"unknown command '{name}', expected one of {', '.join(commands)}.{hint}")
    return name, rest


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status, as docs/errors.md lists them.
    """
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        with lasting_output() as faults:
            status = _run(list(sys.argv[1:] if arguments is None else arguments))
    except BaseException as error:
        _end_rank(error)
        raise
    if status != DONE:
        _end_rank(SystemExit(status))
    if faults:
        print(f"gar: a part of the output could not be written: {faults[0].strerror}.", file=sys.stderr)
    return REFUSED if faults and status == DONE else status


def _end_rank(error: BaseException) -> None:
    """End one of several ranks at once after an error.

    The interpreter would wait for exchanges that other ranks may never join, and a thread of the process group could
    abort it.
    """
    ranks: Any = sys.modules.get("torch.distributed")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or ranks is None or not ranks.is_initialized():
        return
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else REFUSED
    else:
        sys.excepthook(type(error), error, error.__traceback__)
        status = REFUSED
    atexit._run_exitfuncs()  # trackers record the end of their runs
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _run(arguments: list[str]) -> int:
    name = ""
    try:
        if arguments[:1] == ["--version"]:
            print(f"gar {__version__}")
            return DONE
        name, rest = choose(arguments, COMMANDS, prog="gar", about=_ABOUT)
        require_extra(_EXTRAS[name], "this command")
        try:
            return importlib.import_module(f"gar.cli.{name}").main(rest)
        except ModuleNotFoundError:  # gar data reads a file without the extra train, and a Hub data set with it
            require_extra("train", "this command with these arguments")
            raise
    except GarError as error:
        print(f"{f'gar {name}'.strip()}: {printable(error)}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, UsageError) else REFUSED
    except KeyboardInterrupt as interrupt:
        again = " Run the same command again to continue." if name in _RESUMABLE else ""
        if os.environ.get("RANK", "0") == "0":
            print(f"\ngar {name}: {str(interrupt) or f'interrupted.{again}'}", file=sys.stderr)
        return INTERRUPTED if not isinstance(interrupt, Interrupted) else 128 + interrupt.number
