"""Tab completion: a script for the shell, with the commands, their stages and flags as the help lists them."""

import io
import os
import re
from contextlib import redirect_stdout, suppress

from gar.cli.main import COMMANDS, main
from gar.errors import UsageError

_BASH = """_gar() {{
  local words="{commands}"
  case "${{COMP_WORDS[*]:1:COMP_CWORD-1}} " in
    " ") ;;
{cases}
    *) words="" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _gar gar
"""
_SHELLS = ("bash", "zsh", "fish")


def completion(arguments: list[str]) -> str:
    """The script for one of bash, zsh and fish."""
    if len(arguments) != 1 or arguments[0] not in _SHELLS:
        raise UsageError(f"--print-completion takes one of {', '.join(_SHELLS)}, got '{' '.join(arguments)}'.")
    if arguments[0] == "fish":
        return "".join(_fish(typed, words) for typed, words in _words().items())
    # The stages of a command come before their command, whose pattern would fit them too.
    typed = sorted(_words().items(), reverse=True)
    cases = "\n".join(f'    "{words} "*) words="{" ".join(options)}" ;;' for words, options in typed if words)
    start = "autoload -U +X bashcompinit && bashcompinit\n" if arguments[0] == "zsh" else ""
    return start + _BASH.format(commands=" ".join(COMMANDS), cases=cases)


def _words() -> dict[str, list[str]]:
    """What may follow the words that are typed: commands, stages or flags."""
    os.environ["COLUMNS"] = "1000"  # no flag is broken
    found = {"": [*COMMANDS]}
    for command in COMMANDS:
        text = _help(command)
        stages = re.findall(r"^  (\w+)  ", text, re.MULTILINE) if "COMMAND --help" in text else []
        found[command] = stages or _flags(text)
        found |= {f"{command} {stage}": _flags(_help(command, stage)) for stage in stages}
    return found


def _help(*words: str) -> str:
    text = io.StringIO()
    for flag in ("--help", "--help-all") if words == ("train",) else ("--help",):
        with redirect_stdout(text), suppress(SystemExit):
            main([*words, flag])
    return text.getvalue()


def _flags(text: str) -> list[str]:
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", text)))


def _fish(typed: str, words: list[str]) -> str:
    end = "" if words[0].startswith("-") else r"\S*$"  # a flag may follow others
    typed = " ".join(filter(None, ["gar", typed]))
    command = f"complete -c gar -n \"string match -rq '^{typed} {end}' (commandline -pc)\""
    return "".join(f"{command} -a '{word}'\n" for word in words)
