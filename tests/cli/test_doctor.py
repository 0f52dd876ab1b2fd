"""`gar doctor`: what it finds, as a table, and how it ends."""

import os
import platform
import re
import sys
from types import SimpleNamespace

import torch

from gar.cli.main import main
from gar.integrations.verl.settings import SUPPORTED
from tests.support.processes import completed


def test_doctor_finds_this_environment_ready_and_every_gpu(capsys, monkeypatch):
    card = SimpleNamespace(name="Old", total_memory=16 * 2**30)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert printed.rstrip().endswith("Ready. Start with: gar train --preset demo")
    for name in ("python", "torch", "transformers", "CPU", "vllm", "verl"):
        assert f" {name} " in printed
    assert re.search(r"ok +GPU 0 +Old, 16 GiB", printed)


def test_doctor_names_what_is_wrong_or_missing(tmp_path, monkeypatch, capsys):
    required = "Requires-Python: >=3.99\nRequires-Dist: nosuch[a]>=3\nRequires-Dist: trl<1.17,>=1.16"
    for name, fields in {"trl-1.20.0": "", "vllm-0.31.0": "", "slime-0.2.1": "", "gar_rl-9": required}.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        text = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n".format(*name.split("-"))
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(text + fields)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor"]) == 1
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for row in (
        "wrong trl 1.20.0, expected <1.17,>=1.16",
        "wrong nosuch not installed, expected >=3",
        f"wrong python {platform.python_version()}, expected >=3.99",
        "ok vllm 0.31.0",
        f"missing verl not installed, expected =={SUPPORTED}",
        "missing slime 0.2.1, expected >=0.3.0",
        "Not ready. Wrong: python, nosuch, trl.",
    ):
        assert row in printed


def test_doctor_finds_an_engines_environment_ready_without_trl(tmp_path, monkeypatch, capsys):
    """Beside verl, whose transformers is older, what `.[train]` adds is optional."""
    requires = "Requires-Dist: nosuch>=3; extra == 'train'\nRequires-Dist: transformers>=99; extra == 'train'"
    for name, fields in {"verl-0.9.1": "", "gar_rl-9": requires}.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        text = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n".format(*name.split("-"))
        text += "Requires-Python: >=3.11\n" if fields else ""
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(text + fields)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor"]) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "missing nosuch not installed, expected >=3" in printed
    assert any(re.fullmatch(r"missing transformers \S+, expected >=99", row) for row in printed)
    last = "Ready for verl and slime. The other commands need in a separate environment: pip install '.[train]'"
    assert printed[-1] == last
    (tmp_path / "verl-0.9.1.dist-info" / "METADATA").unlink()
    (tmp_path / "verl-0.9.1.dist-info").rmdir()
    assert main(["doctor"]) == 1  # with TRL it is wrong
    assert "Not ready. Wrong: nosuch, transformers." in capsys.readouterr().out


def test_doctor_reports_a_torch_that_is_broken(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open [shared] object file')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = completed([sys.executable, "-m", "gar", "doctor"], env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"})
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "libcudart.so.12: cannot open [shared] object file" in ended.stdout
    assert ended.stdout.rstrip().endswith("Not ready. Wrong: import torch.")
