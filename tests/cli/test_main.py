"""`gar`: fast, quiet about what it does not need, and with an exit status that says how it ended."""

import json
import os
import re
import shutil
import sys
from unittest import mock

import pytest

import gar.train.run
from gar import __version__
from gar.cli.main import COMMANDS, main
from gar.errors import RecordError
from tests.evaluation.test_benchmark_table import write_evaluation
from tests.report.runs import make_run
from tests.support.processes import completed
from tests.support.runs import begun_run

HELPS = (
    "", *(name for name in COMMANDS if name != "data"), "train --preset demo", "train --help-all",
    "eval run", "eval score", "eval table", "data", "data check", "data prepare",
    "data slime", "data verl",
)  # fmt: skip


def test_help_loads_nothing_slow_begins_with_the_usage_and_fits_80_columns():
    code = (
        "import contextlib, io, json, sys\nfrom gar.cli.main import main\n"
        f"for command in {HELPS!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):\n"
        "        main([*command.split(), '--help'])\n"
        "    print(json.dumps([command, out.getvalue(), sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    told = completed([sys.executable, "-c", code], check=True, env=os.environ | {"COLUMNS": "80"})
    assert told.stderr == ""
    heavy = {"torch", "transformers", "trl", "datasets", "pandas", "matplotlib", "scipy"}
    found = [json.loads(line) for line in told.stdout.splitlines()]
    for command, text, modules in found:
        assert not {*modules} & (heavy if command.startswith("data") else heavy | {"numpy", "pyarrow"}), command
        assert text.startswith(f"usage: gar {command}".partition(" --")[0])
        assert [line for line in text.splitlines() if len(line) > 80] == []
        assert "(default: <" not in text  # every default is a word
        assert not re.search(r"\(default:\s*\)|\{None\}\|", " ".join(text.split())), command
        if not command:
            assert all(f"  {name}" in text and summary in text for name, summary in COMMANDS.items())


def test_commands_about_files_load_nothing_slow_that_they_do_not_need(write_rows, tmp_path):
    path = write_rows({"prompt": "1+1=", "answer": "2", "expert_solution": "The answer is 2."})
    (tmp_path / "folder").mkdir()
    shutil.copy(path, tmp_path / "folder")
    heavy = ["torch", "transformers", "trl", "datasets", "matplotlib", "scipy.stats", "sympy"]
    readers = [*heavy, "pandas"]
    run = str(make_run(tmp_path, rollouts={}))
    models = [write_evaluation(tmp_path, name, correct) for name, correct in (("a", [1, 2]), ("b", [2, 4]))]
    commands = (
        (["data", "check", path], [*readers, "numpy", "pyarrow"]),
        (["data", "prepare", path, str(tmp_path / "drawn.jsonl"), "--num-problems", "1"], readers),
        (["eval", "table", *models], heavy),
        (["report", run], heavy),
        (["data", "check", str(tmp_path / "folder")], ["torch", "transformers", "trl"]),
    )  # in one process, the lightest first
    code = (
        "import contextlib, io, json, sys\nfrom gar.cli.main import main\n"
        "for arguments, unwanted in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        status = main(arguments)\n"
        "    print(arguments[:2], status, sorted({*unwanted} & {*sys.modules}))"
    )
    told = completed([sys.executable, "-c", code, json.dumps(commands)])
    assert told.stderr == ""  # no progress bar where stderr is no terminal
    assert told.stdout == "".join(f"{arguments[:2]} 0 []\n" for arguments, _ in commands)


def test_main_answers_on_stdout_and_explains_on_stderr(capsys):
    for arguments, status, out, err in (
        (["--version"], 0, f"gar {__version__}\n", ""),
        ([], 2, "", "usage: gar COMMAND"),
        (["eval"], 2, "", "usage: gar eval COMMAND [ARGUMENTS]\n"),
        (["eval", "rnu"], 2, "", "gar eval: unknown command 'rnu', expected one of run, score, table. Did you mean"),
        (["train", "nosuch.yaml"], 1, "", "gar train: nosuch.yaml: "),
        (["report", "--out", "a.html"], 2, "", "gar report: name a run folder"),
        (["data", "check"], 2, "", "SOURCE"),
    ):
        try:
            ended = main(arguments)
        except SystemExit as stop:
            ended = stop.code
        captured = capsys.readouterr()
        assert (ended, captured.out) == (status, out)
        assert err in captured.err


def test_main_returns_a_status_for_how_a_run_ended_and_hides_no_error_that_is_not_explained(monkeypatch, capsys):
    for error, status, said in (
        (RecordError("the disk is full"), 1, "gar train: the disk is full\n"),
        (KeyboardInterrupt(), 130, "\ngar train: interrupted before there was a run folder. Nothing was written.\n"),
        (KeyboardInterrupt("interrupted"), 130, "\ngar train: interrupted\n"),
    ):
        monkeypatch.setattr(gar.train.run, "train", mock.Mock(side_effect=error))
        assert main(["train"]) == status
        assert capsys.readouterr().err == f"gar: loading torch, transformers and TRL ...\n{said}"
    monkeypatch.setattr(gar.train.run, "train", mock.Mock(side_effect=BrokenPipeError("a worker is gone")))
    with pytest.raises(BrokenPipeError, match="a worker is gone"):
        main(["train"])
    capsys.readouterr()
    monkeypatch.setattr("gar.cli.doctor.main", mock.Mock(side_effect=KeyboardInterrupt))
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "\ngar doctor: interrupted.\n"


def test_main_sends_no_telemetry_unless_asked(monkeypatch, capsys):
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY", raising=False)
    main(["train", "nosuch.yaml"])
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "0")
    main(["train", "nosuch.yaml"])
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "0"


def test_names_from_a_foreign_run_reach_the_terminal_as_text(tmp_path, capsys):
    name = "run \x1b]0;title\x07\x1b[2J\udcff"
    folder = begun_run(tmp_path, name)
    folder.append_metrics({"step": 1})
    for command, status in (
        (["report", str(folder.path), "--out", str(tmp_path / "page.html")], 0),
        (["report", str(tmp_path / name / "none"), "--out", str(tmp_path / "page.html")], 1),
        (["eval", "table", str(folder.path)], 1),
    ):
        assert main(command) == status
        printed = "".join(capsys.readouterr())
        assert not {*printed} & {"\x1b", "\x07", "\udcff"}
        assert "\\x1b" in printed
