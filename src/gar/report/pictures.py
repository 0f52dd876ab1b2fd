"""Figures that lie in the run folders, as images: what `gar train` and `gar analyze` have drawn."""

import base64
from collections.abc import Sequence

from gar.report.content import Picture
from gar.report.read import ReadRun

_MAX_BYTES = 600_000
_MAX_BYTES_IN_ALL = 1_500_000


def pictures(runs: Sequence[ReadRun], notes: list[str]) -> list[Picture]:
    """Every `figures/*.svg` of the runs, as far as they fit.

    An SVG inside an image cannot run scripts or load anything.

    Args:
        runs: The runs.
        notes: Receives which figures were left out.
    """
    found, used, left_out = [], 0, []
    for run in runs:
        for path in sorted((run.folder.path / "figures").glob("*.svg")):
            size = path.stat().st_size * 4 // 3
            if size > _MAX_BYTES or used + size > _MAX_BYTES_IN_ALL:
                left_out.append(f"{run.name}/figures/{path.name}")
                continue
            used += size
            found.append(
                Picture(
                    title=path.stem.replace("-", " ").replace("_", " "),
                    caption=f"{run.name}/figures/{path.name}",
                    source="data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii"),
                )
            )
    if left_out:
        notes.append(f"Left out, to keep the file small: {', '.join(left_out)}.")
    return found
