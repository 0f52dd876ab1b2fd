"""Figures as images: those drawn here from the rollouts, and those that lie in the run folders already."""

import base64
import contextlib
import io
from collections.abc import Iterator, Sequence

import matplotlib

from gar.analysis.alignment import alignment_course, alignment_output
from gar.analysis.outputs import Output
from gar.analysis.silent_groups import silent_groups, silent_groups_output
from gar.analysis.style import STYLE
from gar.errors import RecordError
from gar.report.content import Picture
from gar.report.groups import RunGroup
from gar.report.read import ReadRun

_MAX_BYTES = 600_000
_MAX_BYTES_IN_ALL = 1_500_000


def pictures(groups: Sequence[RunGroup], notes: list[str]) -> list[Picture]:
    """Alignment and silent groups of the first run of each group, then every SVG in `figures` and `analysis`.

    An SVG inside an image cannot run scripts or load anything.

    Args:
        groups: The groups.
        notes: Receives which figures were left out.
    """
    found, used, left_out = [], 0, []
    for title, caption, content in _candidates(groups):
        if len(content) > _MAX_BYTES or used + len(content) > _MAX_BYTES_IN_ALL:
            left_out.append(caption)
            continue
        used += len(content)
        source = "data:image/svg+xml;base64," + base64.b64encode(content).decode("ascii")
        found.append(Picture(title=title, caption=caption, source=source))
    if left_out:
        notes.append(f"Figures left out, to keep the file small: {', '.join(left_out)}.")
    return found


def _candidates(groups: Sequence[RunGroup]) -> Iterator[tuple[str, str, bytes]]:
    """Title, caption and SVG of each figure."""
    drawn = set()
    for group in groups:
        for output in _outputs(group.runs[0]):
            if output.figure is not None:
                drawn.add((group.runs[0].name, output.name))
                yield output.title, f"{output.title}. From all recorded rollouts.", _svg(output)
    for run in (run for group in groups for run in group.runs):
        folder = run.folder.path
        for path in (*sorted(folder.glob("figures/*.svg")), *sorted(folder.glob("analysis/*/*.svg"))):
            if (run.name, path.stem) not in drawn:
                name = path.relative_to(folder).as_posix()
                yield path.stem.replace("-", " "), f"{run.name}/{name}", path.read_bytes()


def _outputs(run: ReadRun) -> Iterator[Output]:
    """What the rollouts of a run can show. Where they cannot, the summary says so already."""
    with contextlib.suppress(RecordError):
        course = alignment_course(run.folder.path)
        if course.num_scored:
            yield alignment_output(course)
    with contextlib.suppress(RecordError):
        yield silent_groups_output(silent_groups(run.folder.path))


def _svg(output: Output) -> bytes:
    assert output.figure is not None
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        output.figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
