"""`gar analyze NAME`, every NAME, as a user calls it."""

import pytest

from gar.cli.analyze import _parser
from gar.cli.main import main
from tests.docs.pages import ROOT

SMALL = {
    "alignment": ["RUN", "--steps", "1", "2", "--window", "1"],
    "silent-groups": ["RUN"],
    "gradient-space": ["embedded", "--samples", "8"],
    "tokens": ["RUN", "--step", "1"],
    "signals": ["embedded", "--problems", "3", "--sampled-problems", "2"],
    "theory": ["embedded", "--problems", "2", "--samples", "8"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    arguments = [
        "--preset", "demo", "--trl.max_steps", "2", "--trl.per_device_train_batch_size", "32",
        "--preflight.mode", "off",
        "--evaluate.sources", "--records.folder", str(folder), "--records.name", "demo", "--records.trackio", "False",
    ]  # fmt: skip
    assert main(["train", *arguments]) == 0
    return folder / "demo"


@pytest.mark.parametrize("name", SMALL)
def test_every_analysis_runs_by_its_command(name, run, tmp_path, capsys):
    arguments = [str(run) if word == "RUN" else word for word in SMALL[name]]
    assert main(["analyze", name, *arguments, "--out", str(tmp_path)]) == 0
    suffixes = {".parquet", ".html"} if name == "tokens" else {".parquet", ".svg", ".png"}
    written = {path.suffix for path in tmp_path.iterdir() if path.stem == name}
    assert written >= suffixes
    assert all(str(path) in capsys.readouterr().out.replace("\n", "") for path in [tmp_path / f"{name}.parquet"])


def test_every_analysis_stands_on_its_page():
    (names,) = [action.choices for action in _parser()._actions if action.choices]
    page = (ROOT / "docs/analyses.md").read_text()
    assert set(names) == set(SMALL)
    assert all(f"\n| `{name}` |" in page for name in names)
