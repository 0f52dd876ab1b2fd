"""Every command that README and docs show exists, with every flag it is shown with.

Each goes through the program's own parser. A command that needs a GPU or a network is marked (`pages.MARK`).
"""

import argparse
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

import gar.train.run
from gar.cli import arguments, compare, report
from gar.cli.arguments import parse
from gar.cli.main import main
from tests.docs.pages import PAGES, ROOT, Command, shown_commands
from tests.support.paper_methods import registered

# A value for a word in capitals, if a command takes one of several words, or a number.
PLACEHOLDERS = {"--method": "gar-grpo", "--seed": "0", "--preset": "demo", "--benchmark": "arithmetic"}
_OPTIONAL = re.compile(r"\[(?:,\w+|\w+ \.\.\.)\]")  # [,NAME] and [C ...]


class Reached(Exception):
    """The command line was understood, and the work would begin."""


@pytest.fixture
def stopped(monkeypatch):
    """Every program stops behind its parser."""

    def stopping(function):
        def stop(*arguments, **keywords):
            function(*arguments, **keywords)
            raise Reached

        return stop

    for name in ("train", "dry_run", "resume"):
        monkeypatch.setattr(gar.train.run, name, stopping(lambda *_, **__: None))
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stopping(argparse.ArgumentParser.parse_args))
    for module in (arguments, compare, report):
        monkeypatch.setattr(module, "parse", stopping(parse))
    monkeypatch.setattr("gar.train.checks.check_before_loading", lambda config: None)  # files that pages only name
    monkeypatch.setattr("gar.train.resume.unfinished_run", lambda path: None)
    monkeypatch.setattr("tests.faults.preload.preload", lambda: None)  # would start this process again
    with registered():
        yield


def words_of(command: Command) -> list[str]:
    """The command with its optional parts, and with values for words in capitals. Of a launcher: the part for gar."""
    text = re.sub(r"^([A-Z_]+=\S+ )+", "", _OPTIONAL.sub("", command.text))
    if command.text.startswith("gar"):
        text = text.replace("[", "").replace("]", "").replace(" ...", "")
    words = shlex.split(text)
    if words[0] in ("accelerate", "torchrun"):
        return words[words.index("gar") :] if "gar" in words else []
    if command.inline and words[0] == "gar" and " --" not in text:  # in a sentence it may lack its arguments
        return [*words[: 3 if words[1] in ("data", "eval") else 2], "--help"]
    pairs = zip(["", *words], words, strict=False)
    return [PLACEHOLDERS.get(before, word) if word.isupper() else word for before, word in pairs]


def understood(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the program's own parser takes these words."""
    monkeypatch.chdir(folder)
    for word in words:
        if word.endswith(".yaml"):
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
            (folder / word).write_text("")
    rest = words[1:]
    if words[:2] == ["python", "-m"]:
        module = ROOT / words[2].replace(".", "/")
        rest = [str(module / "__main__.py" if module.is_dir() else f"{module}.py"), *words[3:]]
    monkeypatch.setattr(sys, "argv", rest if words[0] == "python" else words)
    try:
        if words[0] == "gar":
            return main(rest) == 0
        if "argparse" not in (ROOT / rest[0]).read_text():
            return rest[1:] == []
        monkeypatch.syspath_prepend(str((ROOT / rest[0]).parent))  # as Python does
        runpy.run_path(str(ROOT / rest[0]), run_name="__main__")
    except Reached:
        return True
    except SystemExit as stop:
        return stop.code == 0  # --help
    return False


def takes(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a command exists, by its parser or by the project's own files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    match words:
        case ["make", target]:
            return f"\n{target}:" in (ROOT / "Makefile").read_text()
        case ["pytest", *_, marker]:
            return any(known.startswith(f"{marker}: ") for known in project["tool"]["pytest"]["ini_options"]["markers"])
        case ["pip" | "apt-get", *rest]:
            extras = re.findall(r"\.\[([a-z,]+)\]", " ".join(rest))
            return set(",".join(extras).split(",")) - {""} <= set(project["project"]["optional-dependencies"])
        case ["gar" | "python", *_]:
            return understood(words, folder, monkeypatch)
    return not words


@pytest.mark.slow
def test_commands_are_understood_by_their_programs(stopped, tmp_path, monkeypatch, capsys):
    shown = [command for path in PAGES for command in shown_commands(path) if not command.marked]
    assert len(shown) > 200
    once = {(command.text, command.inline): command for command in shown}.values()
    unknown = [str(command) for command in once if not takes(words_of(command), tmp_path, monkeypatch)]
    assert not unknown, "\n".join([*unknown, capsys.readouterr().err])


def test_a_command_with_a_slip_is_not_understood(stopped, tmp_path, monkeypatch):
    for text in ("gar train --reward.bta 1", "gar eval rnu x", "python examples/score_a_file.py a b", "make tset"):
        command = Command("", text, inline=False, marked=False)
        assert not takes(words_of(command), tmp_path, monkeypatch), text
