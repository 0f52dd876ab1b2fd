"""`scripts/test_gpu.py` without a GPU: the whole of it with tiny shapes, and what ends a part."""

import hashlib
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from gar.models.embedded import load_embedded
from tests.docs.pages import ROOT
from tests.support.processes import completed, wait_until

SCRIPT = ROOT / "scripts" / "test_gpu.py"
PARTS = ("packages", "core", "training", "model", "demo", "smollm2", "step-8b", "step-4b", "head", "scale")


def make_wheel(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "nothing-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("nothing.py", "")
        wheel.writestr("nothing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
        wheel.writestr("nothing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("nothing-1.0.dist-info/RECORD", "")


def make_parts(folder: Path) -> None:
    """As `scripts/gpu_wheels.sh`, of the embedded model."""
    model, tokenizer = load_embedded()
    model.save_pretrained(folder / "whole")
    tokenizer.save_pretrained(folder / "whole")
    with zipfile.ZipFile(folder / "model.whl", "w") as archive:
        for path in (folder / "whole").iterdir():
            archive.write(path, path.name)
    whole = (folder / "model.whl").read_bytes()
    for number, start in enumerate(range(0, len(whole), 2**20)):
        (folder / f"part-{number:02}").write_bytes(whole[start : start + 2**20])
    (folder / "SHA256").write_text(f"{hashlib.sha256(whole).hexdigest()}  model.whl\n")
    (folder / "model.whl").unlink()


@pytest.mark.slow
def test_the_whole_script_is_rehearsed(tmp_path):
    make_wheel(tmp_path / "wheels")
    make_parts(tmp_path / "model")
    told = {"DEVICE": "cpu", "OUT": tmp_path / "out", "WHEELS": tmp_path / "wheels", "MODEL_PARTS": tmp_path / "model"}
    environment = os.environ | {name: str(value) for name, value in told.items()}
    done = completed([sys.executable, SCRIPT], env=environment, cwd=tmp_path, seconds=4800)
    found = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert done.returncode == 0, (done.stdout, [log.read_text()[-3000:] for log in (tmp_path / "out").glob("*.log")])
    assert {part["name"]: part["status"] for part in found["parts"]} == dict.fromkeys(PARTS, "ok")
    assert all(part["rows"] and part["found"] for part in found["parts"])
    by_name = {part["name"]: part["found"] for part in found["parts"]}
    for name, number in (("core", 40), ("training", 10)):
        assert {test["status"] for test in by_name[name]} == {"passed"}
        assert len(by_name[name]) >= number
    assert [len(by_name[name]) for name in ("demo", "smollm2")] == [2, 2]
    assert {"torch", "transformers"} < set(found["versions"])
    table = (tmp_path / "out" / "gpu.md").read_text()
    assert [line.split("**")[1] for line in table.splitlines() if line.startswith("| **")] == list(PARTS)
    assert all(text in table for text in ("time/update_seconds", "GAR's share", "beside the arguments", "1 - cos"))


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setenv("DEVICE", "cpu")
    import test_gpu

    return test_gpu


def alive(pid: int) -> bool:
    """Whether a process runs, which one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_part_ends_at_its_limit_and_counts_if_it_has_done_enough(script, tmp_path):
    """Its children end with it. A command that fails leaves out the next."""
    started = tmp_path / "started"
    waits = ["bash", "-c", f"sleep 600 & echo $! > {started}; wait"]
    with open(tmp_path / "log", "w") as log:

        def ended(*commands, seconds=600.0, **options):
            part = script.Part("part", seconds, list(commands), lambda: 3, list, **options)
            return script.run(part, tmp_path, seconds, log)

        assert ended(["true"], ["true"]) == ("ok", "")
        assert ended(waits, seconds=2) == ("timeout", "ended after 2 s")
        assert wait_until(lambda: not alive(int(started.read_text())))
        assert ended(waits, seconds=2, enough=lambda found: found == 3) == ("ok", "")
        status, reason = ended(["bash", "-c", "exit 3"], ["touch", "reached"])
        assert (status, reason.partition(" ended ")[2]) == ("failed", "with 3: see its log")
        assert not (tmp_path / "reached").exists()
        assert ended(["touch", "reached"], seconds=0) == ("timeout", "no time was left")
        assert ended(["true"], needs=tmp_path / "absent")[0] == "skipped"
