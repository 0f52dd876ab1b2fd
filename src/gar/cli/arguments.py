"""Command lines in one style: aliases of flags, and one-line errors that suggest the nearest known word.

A setting is named by its place in a configuration (`--data.answer_field`). Every command also takes its last part alone
if that is unique (`--answer-field`), with hyphens or underscores, and the names of `_SAME`.
"""

import dataclasses
import re
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import tyro
from pydantic import BaseModel
from tyro._errors import (  # not public, so the release is checked by a test
    BadValue,
    InstantiationFailure,
    InvalidChoice,
    MissingArgs,
    ParseErrorEvent,
    UnrecognizedArgs,
    on_parse_error,
)

from gar.cli.parser import nearest, unknown_argument
from gar.config import in_words
from gar.errors import UsageError

_SAME = (
    {"samples", "num-samples"},
    {"max-new-tokens", "max-tokens", "max-completion-length"},
)
"""Names that different commands use for the same setting."""


class _Misread(Exception):
    """An error of tyro's parser."""

    def __init__(self, event: ParseErrorEvent):
        super().__init__()
        self.event = event


def parse(
    kind: Any,
    arguments: Sequence[str],
    *,
    prog: str,
    description: str = "",
    call: Callable[..., Any] = tyro.cli,
    **options: Any,
) -> Any:
    """`tyro.cli` with our aliases and errors.

    Args:
        kind: A class of settings, or a function to call.
        arguments: The command line.
        prog: The command.
        description: The beginning of its help.
        call: `tyro.cli`, or another entry point of tyro.
        options: More options of `call`.

    Raises:
        UsageError: The command line cannot be understood.
    """
    known = [flag if options.get("use_underscores") else flag.replace("_", "-") for flag in flags(kind)]
    known = list(dict.fromkeys(known))
    arguments = list(arguments)
    switches = {_same(flag) for flag in flags(kind, of=bool)}
    with_values = tyro.conf.FlagConversionOff in options.get("config", ())
    if isinstance(kind, dict) and not arguments:
        raise UsageError(f"expected one of {', '.join(kind)}. {prog} --help says more.")
    if isinstance(kind, dict) and not arguments[0].startswith("-") and arguments[0] not in kind:
        hint = nearest(arguments[0], kind)
        raise UsageError(f"unknown command '{arguments[0]}', expected one of {', '.join(kind)}.{hint}")
    while True:
        try:
            with on_parse_error(_raise):
                switched = _switched(arguments, switches, with_values=with_values)
                return call(kind, args=switched, prog=prog, description=description, **options)
        except _Misread as misread:
            in_full = [spelled(argument, known) for argument in arguments]
            if in_full == arguments:
                raise UsageError(_explained(misread.event, arguments, known)) from None
            arguments = in_full


def _raise(event: ParseErrorEvent) -> None:
    raise _Misread(event)


def _switched(arguments: Sequence[str], switches: Collection[str], *, with_values: bool) -> list[str]:
    """Rewrite `--overwrite true` as `--overwrite=True`; without values, as `--overwrite` or `--no-overwrite`.

    tyro's flag for no is that of the last part: `--reward.no-clip`.
    """
    kept: list[str] = []
    for argument in arguments:
        flag = kept[-1] if kept else ""
        name, equals, value = argument.partition("=")
        if _is_truth(argument) and flag.startswith("--") and _same(flag) in switches:
            name, equals, value = kept.pop(), "=", argument
        if equals and _is_truth(value) and _same(name) in switches:
            value = value.capitalize()
            section, dot, leaf = name.removeprefix("--").rpartition(".")
            without = name if value == "True" else f"--{section}{dot}no-{leaf}"
            argument = f"{name}={value}" if with_values else without
        kept.append(argument)
    return kept


def _is_truth(value: str) -> bool:
    return value in ("True", "False", "true", "false")


def flags(kind: Any, prefix: str = "--", of: type | None = None) -> Iterator[str]:
    """Every flag of a class of settings or of a function; with `of`, only those of that type.

    Positional arguments are included, which does no harm.
    """
    if isinstance(kind, dict):  # commands by name
        yield from (flag for command in kind.values() for flag in flags(command, of=of))
        return
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        marks = getattr(hint, "__metadata__", ())
        inner = typing.get_args(hint)[0] if marks else hint
        if name in ("return", "model_config") or name.startswith("_"):
            continue
        if isinstance(inner, type) and (issubclass(inner, BaseModel) or dataclasses.is_dataclass(inner)):
            yield from flags(inner, prefix if tyro.conf.OmitArgPrefixes in marks else f"{prefix}{name}.", of)
        elif of in (None, inner) and inner is not dict and typing.get_origin(inner) is not dict:
            yield f"{prefix}{name}"


def spelled(argument: str, known: Sequence[str]) -> str:
    """The argument with its flag's full name.

    Raises:
        UsageError: The name is short for several settings.
    """
    name, equals, value = argument.partition("=")
    if not name.startswith("--") or _same(name) in map(_same, known):
        return argument
    leaf = _leaf(name)
    names = {leaf, *(other for group in _SAME if leaf in group for other in group)}
    similar = [flag for flag in known if _leaf(flag) in names]
    exact = [flag for flag in similar if _leaf(flag) == leaf] or similar
    if "." in name.removeprefix("--"):
        exact = [flag for flag in exact if "." not in flag.removeprefix("--")]  # the same name in another section
    if len(exact) > 1:
        raise UsageError(f"{name} is short for several settings: {', '.join(exact)}. Name one of them.")
    return f"{exact[0]}{equals}{value}" if exact else argument


def _same(flag: str) -> str:
    return flag.replace("_", "-").replace("--no-", "--")


def _leaf(flag: str) -> str:
    return flag.removeprefix("--").rpartition(".")[2].replace("_", "-")


def _explained(event: ParseErrorEvent, arguments: Sequence[str], known: Sequence[str]) -> str:
    help = f"{event.prog} --help says more."
    if isinstance(event, UnrecognizedArgs):
        return unknown_argument(event.tokens, known, help)
    if isinstance(event, MissingArgs):
        if event.unrecognized_tokens:
            return unknown_argument(event.unrecognized_tokens, known, help)
        words = []
        for missing in event.missing_arguments:
            flag, metavar = missing.arg.lowered.name_or_flags[0], missing.arg.lowered.metavar
            words.append(f"{flag} {metavar or flag}" if flag.startswith("--") else str(metavar or flag))
        return f"{', '.join(words)} is missing. {help}"
    argument = getattr(event, "argument", None)
    flag = argument.lowered.name_or_flags[-1] if argument else ""
    if isinstance(event, InvalidChoice):
        hint = nearest(event.value, event.choices)
        return f"{flag} must be one of {', '.join(event.choices)}; got '{event.value}'.{hint}"
    if isinstance(event, BadValue):
        return f"{flag} needs a value ({argument.lowered.metavar}). {help}" if argument else help
    if isinstance(event, InstantiationFailure):
        return _refused(event.message, flag, argument, arguments)
    return f"these arguments cannot be read: {' '.join(arguments)}. {help}"


def _refused(message: str, flag: str, argument: Any, arguments: Sequence[str]) -> str:
    """Explain a value of the wrong type or range, from pydantic's message where it comes from there."""
    refusal = re.search(r"for \w+\n(?:(\w[\w.]*)\n)?\s+(.*?) \[type=\w+, input_value=(.*), input_type", message)
    if refusal:
        leaf, text, value = refusal[1] or "", refusal[2].removeprefix("Value error, "), refusal[3]
        given = [name for name in (word.partition("=")[0] for word in arguments) if name.startswith("--")]
        named = [name for name in given if leaf and _leaf(name) == leaf.partition(".")[0].replace("_", "-")]
        return f"{in_words(named[-1], text)}, got {value}" if named else text
    if not argument:
        return message.partition("\n")[0]
    got = re.search("'(.*?)'", message)
    return f"{flag} must be {argument.lowered.metavar}" + (f", got '{got[1]}'" if got else "")
