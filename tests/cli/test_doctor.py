"""`gar doctor`: what it finds, as a table, and how it ends."""

import importlib
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from gar.cli import doctor
from gar.cli.main import main
from gar.integrations.verl.settings import SUPPORTED


@pytest.fixture
def install(tmp_path, monkeypatch):
    """`install("trl", "1.20.0", "Requires-Dist: torch>=2")` makes it look so."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, version: str, *fields: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *fields])
        )
        importlib.invalidate_caches()

    return install


def named(name: str) -> doctor.Item:
    items = [*doctor._versions(), *doctor._devices(), *doctor._optional()]
    (item,) = [item for item in items if item.name == name]
    return item


def test_doctor_finds_this_environment_ready_and_every_gpu(capsys, monkeypatch):
    card = SimpleNamespace(name="Old", major=7, total_memory=16 * 2**30)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert printed.rstrip().endswith("Ready. Start with: gar train --preset demo")
    for name in ("python", "torch", "transformers", "CPU", "vllm", "verl"):
        assert f" {name} " in printed
    assert re.search(r"ok +GPU 0 +Old, 16 GiB +no native bfloat16: --trl.bf16 false", printed)
    assert "gar-rl[" not in printed


def test_doctor_names_what_is_wrong_or_missing(install):
    for name, version, fields, expected in (
        ("trl", "1.20.0", (), ("trl", "wrong", "1.20.0, expected <1.17,>=1.16", "pip install 'trl<1.17,>=1.16'")),
        ("vllm", "0.31.0", (), ("vllm", "ok", "0.31.0", "")),
        ("other", "1", (), ("verl", "missing", "not installed", f"pip install verl=={SUPPORTED} in")),
        ("slime", "0.3.1", (), ("slime", "missing", "not installed", "different package")),
        ("gar-rl", "9", ("Requires-Python: >=3.99", "Requires-Dist: nosuch[a]>=3"),
         ("python", "wrong", "expected >=3.99", "different Python")),
        ("other2", "9", (), ("nosuch", "wrong", "not installed, expected >=3", "pip install 'nosuch[a]>=3'")),
    ):  # fmt: skip
        install(name, version, *fields)
        item = named(expected[0])
        assert item.status == expected[1]
        assert expected[2] in item.found
        assert expected[3] in item.advice


def test_doctor_reports_a_torch_that_is_broken(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open [shared] object file')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-m", "gar", "doctor"], env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (1, "")
    reason = "Not ready:\n  import torch: libcudart.so.12: cannot open [shared] object file"
    assert ended.stdout.rstrip().endswith(reason)
