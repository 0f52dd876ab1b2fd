"""A run folder with any one file damaged: the report names what is missing, in a sentence or on the page."""

import shutil
from pathlib import Path

import gar.report.build
from gar.cli.main import main
from gar.records import RunFolder
from tests.report.runs import make_run
from tests.support.damage import damages

FILES = ("run.json", "config.yaml", "metrics.jsonl", "evaluation/after.json", "rollouts/step-000002.parquet")


def test_a_damaged_file_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gar.report.build, "pictures", lambda *_: [])  # Matplotlib takes a second a figure
    monkeypatch.setenv("COLUMNS", "5000")
    whole, folder = make_run(tmp_path, steps=2), tmp_path / "damaged" / "run"
    RunFolder(whole).update_run(status="finished", summary={"steps": 2})

    def report(path: Path) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(["report", str(path), "--out", str(tmp_path / "page.html"), "--overwrite"]), *capsys.readouterr()

    said = report(whole)[1]
    for file in FILES:
        assert file not in said
        for name, damage in damages(Path(file)).items():
            shutil.rmtree(folder, ignore_errors=True)
            damage(Path(shutil.copytree(whole, folder)) / file)
            status, out, err = report(folder)
            assert file in (err if status else out), (file, name)
            assert (status, err) == (0, "") or (status, out, err.count("\n")) == (1, "", 1), (file, name)
            assert "Traceback" not in err
