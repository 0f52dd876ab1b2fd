"""argparse with our style of errors. Imports only the standard library: `gar doctor` runs without other packages."""

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from gar.errors import UsageError


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors."""

    def error(self, message: str) -> NoReturn:
        """Raise the error in our style.

        Raises:
            UsageError: Always.
        """
        if unknown := re.fullmatch(r"unrecognized arguments: (.*)", message):
            known = list(self._option_string_actions)
            raise UsageError(unknown_argument(unknown[1].split(), known, f"{self.prog} --help says more."))
        choice = re.fullmatch(r"argument (.*): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            words = choice[3].replace("'", "")
            hint = nearest(choice[2], words.split(", "))
            raise UsageError(f"{choice[1]} must be one of {words}; got '{choice[2]}'.{hint}")
        raise UsageError(f"{message}. {self.prog} --help says more.")


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known word; "" where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {int(text)}")
    return int(text)


def unknown_argument(tokens: Sequence[str], known: Sequence[str], help: str) -> str:
    """The error text for arguments that are not understood."""
    token = next((token for token in tokens if token.startswith("-")), tokens[0])
    if not token.startswith("-"):
        return f"unexpected argument '{token}' where a flag is expected. {help}"
    name = token.partition("=")[0]
    return f"unknown flag {name}.{nearest(name, known) or ' ' + help}"
