"""The script for tab completion, as bash runs it."""

import subprocess
from pathlib import Path

import pytest

from gar.cli.main import main
from tests.support.processes import SECONDS


@pytest.fixture(scope="module")
def script(tmp_path_factory, request) -> Path:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    path = tmp_path_factory.mktemp("completion") / "gar.bash"
    with capture.global_and_fixture_disabled(), path.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        patch.setenv("COLUMNS", "80")
        assert main(["--print-completion", "bash"]) == 0
    return path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("do", "doctor"),
        ("data ch", "check"),
        ("train --trl.learning_r", "--trl.learning_rate"),
        ("train my.yaml --signal.max_t", "--signal.max_tokens"),
        ("eval run embedded --bench", "--benchmark"),
        ("eval table --bench", ""),
        ("nosuch ", ""),
    ],
)
def test_bash_completes_commands_stages_and_flags(script, typed, offered):
    code = f'. {script}; COMP_WORDS=(gar "$@"); COMP_CWORD=$#; _gar; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", code, "bash", *typed.split(" ")], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout.strip() == offered


def test_completion_is_for_three_shells(capsys):
    assert main(["--print-completion", "csh"]) == 2
    assert "takes one of bash, zsh, fish, got 'csh'" in capsys.readouterr().err
