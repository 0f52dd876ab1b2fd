"""`gar doctor`: what it prints, as text and as JSON, and how it ends."""

import dataclasses
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

import gar.cli.doctor
from gar import __version__
from gar.cli.main import main
from gar.doctor import Check, CheckStatus, Section
from gar.settings import RecordSettings

ROOT = Path(__file__).parents[2]
MODULE = [sys.executable, "-m", "gar", "doctor"]
FINE = [
    Check(section="versions", name="python", status="ok", required=True, state="3.11.7"),
    Check(section="versions", name="tqdm", status="ok", required=True, state="4.70.1"),
    Check(section="versions", name="rich", status="ok", required=True, state="15.0.0"),
    Check(section="devices", name="CPU", status="ok", state="2 cores, 1 thread", purpose="the demo"),
    Check(
        section="extras", name="peft", status="missing", state="not installed", purpose="LoRA", advice="pip install x"
    ),
    Check(section="extras", name="docs", status="wrong", state="too old [bold]", advice="pip install y"),
]
BROKEN = Check(section="versions", name="trl", status="wrong", required=True, state="2.0", advice="pip install 'trl<2'")


KEYS = {field.name for field in dataclasses.fields(Check)} - {"state"} | {"found"}
"""What `gar doctor --json` says of a check; others read it, so its keys stay."""


def json_of(check: Check) -> dict[str, object]:
    values = dataclasses.asdict(check)
    return values | {"found": values.pop("state")}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command without a terminal, and without the settings of one."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE")
    }
    env = kept | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.run([*MODULE, *arguments], env=env, capture_output=True, text=True)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the command finds: fine, unless a test changes it. 80 columns, no colours."""
    checks = list(FINE)
    monkeypatch.setattr(gar.cli.doctor, "examine", lambda folder: checks)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return checks


# For real.


@pytest.fixture(scope="module")
def real() -> subprocess.CompletedProcess[str]:
    return run("--json")


def test_doctor_finds_this_environment_ready(real):
    assert real.returncode == 0, real.stdout
    assert real.stderr == ""
    record = json.loads(real.stdout)
    assert (record["gar"], record["ready"]) == (__version__, True)
    for check in record["checks"]:
        assert check.keys() == KEYS
        assert check["status"] in get_args(CheckStatus)
        assert check["found"]
        assert check["advice"] or check["name"] == "CUDA" or check["status"] == "ok", check["name"]
    assert list(dict.fromkeys(check["section"] for check in record["checks"])) == list(get_args(Section))
    checks = {check["name"]: check for check in record["checks"]}
    assert checks["training"]["found"] == "embedded model runs: 797,056 parameters"
    assert checks["verification"]["found"].startswith("one answer graded")
    assert checks["CPU"]["found"] == "threads: 1"


def test_doctor_reports_libraries_that_are_broken(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    (tmp_path / "math_verify.py").write_text("raise ImportError('no SymPy')")
    ended = run(PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert ended.returncode == 1
    assert ended.stderr == ""
    words = " ".join(ended.stdout.split())
    reasons = words.partition("Not ready: ")[2]
    assert reasons.startswith(
        "torch: ImportError: libcudart.so.12: cannot open shared object file training: ImportError: "
    )
    assert "verification: " in reasons
    assert "wrong torch ImportError: libcudart.so.12: cannot open shared object file" in words
    assert "wrong training ImportError: libcudart" in words
    assert "no SymPy" in words
    assert max(map(len, ended.stdout.splitlines())) <= 80


def test_doctor_imports_no_library_itself():
    code = (
        "import sys, gar.cli.doctor as doctor\nfrom pathlib import Path\n"
        "doctor.examine.__globals__['_probed'] = lambda probe: {'fault': 'not tried'}\n"
        "doctor.examine(Path('runs'))\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "trl", "datasets", "numpy", "pydantic", "peft", "pyarrow", "vllm"}
    assert not set(ended.stdout.split()) & heavy


# Text.


def test_doctor_prints_sections_with_advice_and_purpose(checks, capsys):
    assert main(["doctor"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "Versions",
        "  ok       python          3.11.7",
        "  ok       others          tqdm 4.70.1, rich 15.0.0",
        "",
        "Devices",
        "  ok       CPU             2 cores, 1 thread (the demo)",
        "",
        "Extras",
        "  missing  peft            not installed (LoRA)",
        "                           -> pip install x",
        "  wrong    docs            too old [bold]",
        "                           -> pip install y",
        "",
        "Ready. Start with: gar train --preset demo",
    ]


def test_doctor_names_what_is_required_and_wrong(checks, capsys):
    checks.append(BROKEN)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "  wrong    trl             2.0" in out
    assert out.endswith("Not ready:\n  trl: 2.0\n")


# JSON and exit status.


@pytest.mark.parametrize(("broken", "status"), [(False, 0), (True, 1)])
def test_doctor_json_says_the_same(broken, status, checks, capsys):
    if broken:
        checks.append(BROKEN)
    assert main(["doctor", "--json"]) == status
    record = json.loads(capsys.readouterr().out)
    assert record == {
        "gar": __version__,
        "ready": not broken,
        "checks": [json_of(check) for check in checks],
    }


def test_doctor_looks_at_the_folder_that_training_writes_to(monkeypatch, capsys):
    seen: list[Path] = []
    monkeypatch.setattr(gar.cli.doctor, "examine", lambda folder: seen.append(folder) or [])
    main(["doctor"])
    main(["doctor", "--folder", "elsewhere"])
    assert seen == [Path(RecordSettings().folder), Path("elsewhere")]


def test_doctor_help_explains_statuses_and_exit_status(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--help"])
    assert ended.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("usage: gar doctor [-h] [--json] [--folder FOLDER]")
    assert "missing: optional and not installed" in out
    assert "Exit status 1 where something required is wrong, else 0." in out


# The documentation.


def test_installation_page_knows_every_extra_and_section():
    page = (ROOT / "docs" / "installation.md").read_text()
    for extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]:
        assert f"| `{extra}` |" in page
    for section in get_args(Section):
        assert f"\n{section.capitalize()}\n" in page
    for key in KEYS:
        assert f"`{key}`" in page
