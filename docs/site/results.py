"""Pages show figures of `results/`, which holds numbers alone: draw them into the site, and point there."""

import atexit
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[2]
SHOWN = ("main", "lower-rate", "word-problems")
"""Comparisons whose curves a page shows."""
_RESULTS = "results"
_BESIDE = f"](../{_RESULTS}/"


def draw_curves(name: str, folder: Path) -> Path:
    """Draw the curves of a comparison from its committed results.

    Returns:
        The PNG file.

    Raises:
        RecordError: There are no results, or they were made under other settings.
    """
    from gar.comparison.plan import planned_runs
    from gar.comparison.report import write_curves
    from gar.comparison.settings import read_comparison
    from gar.comparison.store import finished_results

    comparison = read_comparison(name).model_copy(update={"results": str(ROOT / _RESULTS / name)})
    png, _ = write_curves(comparison, finished_results(planned_runs(comparison, name)), folder)
    return png


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add every figure under the path at which `gar compare NAME --report` would write it."""
    from mkdocs.structure.files import File

    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)  # the site is built by then
    for name in SHOWN:
        path = draw_curves(name, folder / name)
        files.append(File.generated(config, f"{_RESULTS}/{name}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """The links of pages name the folder beside `docs/`; in the site `results/` is inside."""
    return markdown.replace(_BESIDE, f"]({_RESULTS}/")
