"""`gar`: fast, quiet about what it does not need, and with an exit status that says how it ended."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

import gar.train.run
from gar import __version__
from gar.cli.main import COMMANDS, main
from gar.errors import RecordError

MODULE = [sys.executable, "-m", "gar"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MODULE, *arguments], capture_output=True, text=True)


HELPS = (
    "", *(name for name in COMMANDS if name != "data"), "train --preset demo", "train --help-all", "eval generate",
    "eval run", "eval score", "eval table", "eval list", "data", "data check", "data prepare",
    "data guide", "data slime", "data verl",
)  # fmt: skip


def test_help_names_every_command_and_takes_under_a_second():
    seconds = []
    for _ in range(3):  # the fastest of three: other processes may be busy
        start = time.perf_counter()
        finished = run("--help")
        seconds.append(time.perf_counter() - start)
    assert finished.returncode == 0
    assert finished.stdout.startswith("usage: gar COMMAND [ARGUMENTS]\n")
    assert all(f"  {name}" in finished.stdout and summary in finished.stdout for name, (_, summary) in COMMANDS.items())
    assert min(seconds) < 1.0


def test_help_imports_no_library_that_takes_seconds():
    code = (
        "import contextlib, io, sys\nfrom gar.cli.main import main\n"
        f"for command in {HELPS!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main([*command.split(), '--help'])\n"
        "    print(command or 'gar', *{name.partition('.')[0] for name in sys.modules})"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    heavy = {"torch", "transformers", "trl", "datasets", "pandas", "matplotlib", "scipy"}
    for line in lines:
        assert not {*line.split()} & (heavy if line.startswith("data") else heavy | {"numpy", "pyarrow"}), line
    assert len(lines) == len(HELPS)


@pytest.mark.parametrize("command", HELPS)
def test_help_begins_with_the_usage_and_fits_80_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: gar {command}".partition(" --")[0])
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "(default: <" not in text  # every default is a word


def test_help_survives_a_reader_that_leaves():
    process = subprocess.Popen([*MODULE, "train", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # as `gar train --help | head` does
    assert process.stderr.read() == ""
    assert process.wait() == 0
    process.stderr.close()


def test_main_prints_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gar {__version__}\n"


def test_main_without_a_command_is_wrong_usage(capsys):
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: gar COMMAND" in captured.err


def test_main_refuses_an_unknown_command(capsys):
    assert main(["trian"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    expected = f"gar: unknown command 'trian', expected one of {', '.join(COMMANDS)}. Did you mean 'train'?\n"
    assert captured.err == expected


def test_main_prints_an_explained_error_without_a_traceback(capsys):
    assert main(["train", "nosuch.yaml"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "gar train: nosuch.yaml: cannot read the configuration: No such file or directory\n"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RecordError("the disk is full"), 1, "gar train: the disk is full\n"),
        (KeyboardInterrupt(), 130, "\ngar train: interrupted before there was a run folder; nothing was written\n"),
        (KeyboardInterrupt("interrupted"), 130, "\ngar train: interrupted\n"),
    ],
    ids=["explained", "Ctrl-C at the start", "Ctrl-C later"],
)
def test_main_returns_a_status_for_how_a_run_ended(error, status, said, monkeypatch, capsys):
    def end(*args, **kwargs):
        raise error

    monkeypatch.setattr(gar.train.run, "train", end)
    assert main(["train"]) == status
    assert capsys.readouterr().err == f"gar: loading torch, transformers and TRL ...\n{said}"


def test_main_says_that_a_command_was_interrupted(monkeypatch, capsys):
    def end(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gar.cli.doctor.main", end)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "\ngar doctor: interrupted\n"


def test_main_hides_no_error_that_is_not_explained(monkeypatch):
    def end(*args, **kwargs):
        raise BrokenPipeError("a worker is gone")

    monkeypatch.setattr(gar.train.run, "train", end)
    with pytest.raises(BrokenPipeError, match="a worker is gone"):
        main(["train"])


def test_main_sends_no_telemetry_unless_asked(monkeypatch, capsys):
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY", raising=False)
    main(["train", "nosuch.yaml"])
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "0")
    main(["train", "nosuch.yaml"])
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "0"
